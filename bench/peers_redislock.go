package main

import (
	"context"
	"errors"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"
)

type redislockLocker struct {
	client *redis.Client
	locks  *redislock.Client
	ttl    time.Duration
}

func openRedislock(_ context.Context, addrs []string, ttl time.Duration) (locker, error) {
	client := redis.NewClient(&redis.Options{Addr: addrs[0]})
	return &redislockLocker{client, redislock.New(client), ttl}, nil
}

// lock asks once, as redislock does by default.
func (l *redislockLocker) lock(ctx context.Context, key string) (unlock, error) {
	return l.tryLock(ctx, key)
}

func (l *redislockLocker) tryLock(ctx context.Context, key string) (unlock, error) {
	lock, err := l.locks.Obtain(ctx, key, l.ttl, nil)
	if errors.Is(err, redislock.ErrNotObtained) {
		return nil, errHeld
	}
	if err != nil {
		return nil, err
	}
	return lock.Release, nil
}

func (l *redislockLocker) close() { _ = l.client.Close() }
