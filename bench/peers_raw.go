package main

import (
	"context"
	"crypto/rand"
	"errors"
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
	client *redis.Client
	ttl    time.Duration
}

var goRedisCompareAndDelete = redis.NewScript(compareAndDelete)

func openRawGoRedis(_ context.Context, addrs []string, ttl time.Duration) (locker, error) {
	client := redis.NewClient(&redis.Options{Addr: addrs[0]})
	return rawGoRedis{client, client, ttl}, nil
}

func openRawAutoPipelined(_ context.Context, addrs []string, ttl time.Duration) (locker, error) {
	client := redis.NewClient(&redis.Options{Addr: addrs[0]})
	shared, err := client.AutoPipeline()
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return rawGoRedis{shared, client, ttl}, nil
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
		deleted, err := goRedisCompareAndDelete.Run(ctx, l.commands, []string{key}, value).Int()
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
