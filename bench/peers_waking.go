package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
)

// wakingPeers are lockkit in two ways to learn that a key is free.
var wakingPeers = []peer{
	{name: "lockkit, push to all", command: "publish", open: openPushed},
	{name: "lockkit, queue", open: openLockkit},
}

const pushFallbackMin, pushFallbackMax = 50 * time.Millisecond, 250 * time.Millisecond // as lockkit asks where it has no place in a queue

// A pushedLocker is woken by each release, with all others that wait, and has no queue. It needs no more of lockkit than
// TryAcquire. It is for one key, and for one call at a time.
type pushedLocker struct {
	lockkitLocker
	nodes []*redis.Client

	ears   []*redis.PubSub // by node; nil = nobody has waited
	work   sync.WaitGroup  // of those that listen
	latest atomic.Uint64   // token that was released
	wake   chan struct{}   // room for one: there is a later one
}

func openPushed(ctx context.Context, addrs []string, ttl time.Duration) (locker, error) {
	l, err := openLockkit(ctx, addrs, ttl)
	if err != nil {
		return nil, err
	}
	pushed := &pushedLocker{lockkitLocker: l.(lockkitLocker), wake: make(chan struct{}, 1)}
	for _, addr := range addrs {
		pushed.nodes = append(pushed.nodes, redis.NewClient(&redis.Options{Addr: addr}))
	}
	return pushed, nil
}

func (l *pushedLocker) lock(ctx context.Context, key string) (unlock, error) {
	for {
		select {
		case <-l.wake: // what was released before is out of date
		default:
		}
		unlock, err := l.tryLock(ctx, key)
		if !errors.Is(err, errHeld) {
			return unlock, err
		}
		if l.ears == nil {
			if err := l.listen(ctx, key); err != nil {
				return nil, err
			}
			continue // nobody listened when it was tried
		}
		fallback := time.NewTimer(pushFallbackMin + rand.N(pushFallbackMax-pushFallbackMin))
		select {
		case <-l.wake:
		case <-fallback.C:
		case <-ctx.Done():
		}
		fallback.Stop()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
}

func (l *pushedLocker) tryLock(ctx context.Context, key string) (unlock, error) {
	lease, err := l.TryAcquire(ctx, key)
	if errors.Is(err, core.ErrHeld) {
		return nil, errHeld
	}
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		errs := []error{lease.Release(ctx)}
		for _, node := range l.nodes {
			errs = append(errs, node.Publish(ctx, channelOf(key), lease.FencingToken()).Err())
		}
		return errors.Join(errs...)
	}, nil
}

func channelOf(key string) string { return "bench:released:" + key }

// listen hears of releases of the key from now until the locker is closed.
func (l *pushedLocker) listen(ctx context.Context, key string) error {
	for _, node := range l.nodes {
		ear := node.Subscribe(context.Background(), channelOf(key))
		l.ears = append(l.ears, ear)
		if _, err := ear.Receive(ctx); err != nil {
			return err
		}
		l.work.Go(func() {
			for message := range ear.Channel() {
				l.hear(message.Payload)
			}
		})
	}
	return nil
}

// hear takes the token of a lease that was released.
func (l *pushedLocker) hear(payload string) {
	token, err := strconv.ParseUint(payload, 10, 64)
	for {
		latest := l.latest.Load()
		if err != nil || token <= latest {
			return // another node has said so
		}
		if l.latest.CompareAndSwap(latest, token) {
			break
		}
	}
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *pushedLocker) close() {
	for _, ear := range l.ears {
		_ = ear.Close()
	}
	l.work.Wait()
	for _, node := range l.nodes {
		_ = node.Close()
	}
	l.lockkitLocker.close()
}
