package main

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

// compareAndDelete is how a lock by SET NX PX is given back.
const compareAndDelete = `if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("DEL", KEYS[1]) end return 0`

var errLost = errors.New("the lock was lost")

// A rawGoRedis locks by SET NX PX: on one connection per call, or through go-redis' pipeline that callers share.
type rawGoRedis struct {
	commands interface {
		redis.Scripter
		SetNX(ctx context.Context, key string, value any, ttl time.Duration) *redis.BoolCmd
	}
	client  *redis.Client
	ttl     time.Duration
	release *redis.Script
}

var goRedisCompareAndDelete = redis.NewScript(compareAndDelete)

func openRawGoRedis(_ context.Context, addrs []string, ttl time.Duration) (locker, error) {
	client := redis.NewClient(&redis.Options{Addr: addrs[0]})
	return rawGoRedis{client, client, ttl, goRedisCompareAndDelete}, nil
}

func openRawAutoPipelined(_ context.Context, addrs []string, ttl time.Duration) (locker, error) {
	client := redis.NewClient(&redis.Options{Addr: addrs[0]})
	shared, err := client.AutoPipeline()
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return rawGoRedis{shared, client, ttl, goRedisCompareAndDelete}, nil
}

func (l rawGoRedis) lock(ctx context.Context, key string) (unlock, error) {
	return l.tryLock(ctx, key)
}

func (l rawGoRedis) tryLock(ctx context.Context, key string) (unlock, error) {
	value := rand.Text()
	ok, err := l.commands.SetNX(ctx, key, value, l.ttl).Result()
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, errHeld
	}
	return func(ctx context.Context) error {
		deleted, err := l.release.Run(ctx, l.commands, []string{key}, value).Int()
		if err == nil && deleted == 0 {
			err = errLost
		}
		return err
	}, nil
}

func (l rawGoRedis) close() { _ = l.client.Close() }

// A rawRueidis locks by SET NX PX; rueidis pipelines what comes at the same time by itself.
type rawRueidis struct {
	client rueidis.Client
	ttl    time.Duration
}

var rueidisCompareAndDelete = rueidis.NewLuaScript(compareAndDelete)

func openRawRueidis(_ context.Context, addrs []string, ttl time.Duration) (locker, error) {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: addrs})
	if err != nil {
		return nil, err
	}
	return rawRueidis{client, ttl}, nil
}

func (l rawRueidis) lock(ctx context.Context, key string) (unlock, error) {
	return l.tryLock(ctx, key)
}

func (l rawRueidis) tryLock(ctx context.Context, key string) (unlock, error) {
	value := rand.Text()
	set := l.client.B().Set().Key(key).Value(value).Nx().PxMilliseconds(l.ttl.Milliseconds()).Build()
	err := l.client.Do(ctx, set).Error()
	if rueidis.IsRedisNil(err) {
		return nil, errHeld
	}
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		deleted, err := rueidisCompareAndDelete.Exec(ctx, l.client, []string{key}, []string{value}).AsInt64()
		if err == nil && deleted == 0 {
			err = errLost
		}
		return err
	}, nil
}

func (l rawRueidis) close() { l.client.Close() }

const rawChannel = "bench:raw"

// A rawPushed is a rawGoRedis whose releases publish their key, in the script that deletes it: what a hand-off by
// publish costs at the least. It has no queue and no fallback: each key is for one that waits, who is told of each
// release.
type rawPushed struct {
	rawGoRedis
	ear    *redis.PubSub
	heard  sync.WaitGroup
	mu     sync.Mutex
	waiter map[string]chan struct{} // by key; has room for one
}

var compareDeleteAndPublish = redis.NewScript(`if redis.call("GET", KEYS[1]) ~= ARGV[1] then return 0 end
redis.call("PUBLISH", "` + rawChannel + `", KEYS[1]) return redis.call("DEL", KEYS[1])`)

func openRawPushed(ctx context.Context, addrs []string, ttl time.Duration) (locker, error) {
	client := redis.NewClient(&redis.Options{Addr: addrs[0]})
	l := &rawPushed{rawGoRedis: rawGoRedis{client, client, ttl, compareDeleteAndPublish}, ear: client.Subscribe(ctx, rawChannel), waiter: map[string]chan struct{}{}}
	if _, err := l.ear.Receive(ctx); err != nil {
		return nil, errors.Join(err, l.ear.Close(), client.Close())
	}
	l.heard.Go(func() {
		for {
			message, err := l.ear.ReceiveMessage(context.Background())
			if err != nil {
				return // closed: nothing of it breaks here
			}
			select {
			case l.wake(message.Payload) <- struct{}{}:
			default:
			}
		}
	})
	return l, nil
}

func (l *rawPushed) wake(key string) chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiter[key] == nil {
		l.waiter[key] = make(chan struct{}, 1)
	}
	return l.waiter[key]
}

func (l *rawPushed) lock(ctx context.Context, key string) (unlock, error) {
	for {
		unlock, err := l.tryLock(ctx, key)
		if !errors.Is(err, errHeld) {
			return unlock, err
		}
		select {
		case <-l.wake(key):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (l *rawPushed) close() {
	_ = l.ear.Close()
	l.heard.Wait()
	l.rawGoRedis.close()
}
