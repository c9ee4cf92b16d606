package main

import (
	"context"
	"errors"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

type redsyncLocker struct {
	sync    *redsync.Redsync
	options []redsync.Option
	clients []*redis.Client
}

func openRedsync(_ context.Context, addrs []string, ttl time.Duration) (locker, error) {
	return newRedsync(addrs, redsync.WithExpiry(ttl)), nil
}

func openRedsyncFailFast(_ context.Context, addrs []string, ttl time.Duration) (locker, error) {
	return newRedsync(addrs, redsync.WithExpiry(ttl), redsync.WithFailFast(true)), nil
}

func newRedsync(addrs []string, options ...redsync.Option) *redsyncLocker {
	l := &redsyncLocker{options: options}
	var pools []redsyncredis.Pool
	for _, addr := range addrs {
		client := redis.NewClient(&redis.Options{Addr: addr})
		l.clients = append(l.clients, client)
		pools = append(pools, goredis.NewPool(client))
	}
	l.sync = redsync.New(pools...)
	return l
}

func (l *redsyncLocker) lock(ctx context.Context, key string) (unlock, error) {
	m := l.sync.NewMutex(key, l.options...)
	if err := m.LockContext(ctx); err != nil {
		return nil, err
	}
	return unlockRedsync(m), nil
}

func (l *redsyncLocker) tryLock(ctx context.Context, key string) (unlock, error) {
	m := l.sync.NewMutex(key, l.options...)
	err := m.TryLockContext(ctx)
	if _, taken := errors.AsType[*redsync.ErrTaken](err); taken {
		return nil, errHeld
	}
	if err != nil {
		return nil, err
	}
	return unlockRedsync(m), nil
}

func unlockRedsync(m *redsync.Mutex) unlock {
	return func(ctx context.Context) error {
		_, err := m.UnlockContext(ctx)
		return err
	}
}

func (l *redsyncLocker) close() {
	for _, c := range l.clients {
		_ = c.Close()
	}
}
