package main

import (
	"context"
	"errors"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

type rueidislockLocker struct{ rueidislock.Locker }

// openRueidislock follows the README of rueidislock for a single Redis.
func openRueidislock(_ context.Context, addrs []string, ttl time.Duration) (locker, error) {
	l, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   rueidis.ClientOption{InitAddress: addrs},
		KeyMajority:    1,
		NoLoopTracking: true,
		KeyValidity:    ttl,
		ExtendInterval: ttl / 3, // as lockkit does
		// The default, 20 ms, is when to go on to the next key, and there is none. What takes longer would fail.
		TryNextAfter: time.Second,
	})
	if err != nil {
		return nil, err
	}
	return rueidislockLocker{l}, nil
}

func visitRueidislock(addr string, _ int, ttl time.Duration) (locker, error) {
	return openRueidislock(context.Background(), []string{addr}, ttl)
}

func (l rueidislockLocker) hold(ctx context.Context, key string) (lease, error) {
	held, cancel, err := l.WithContext(ctx, key)
	if err != nil {
		return nil, err
	}
	return &rueidislockLease{held, cancel}, nil
}

func (l rueidislockLocker) lock(ctx context.Context, key string) (unlock, error) {
	return unlockRueidislock(l.WithContext(ctx, key))
}

func (l rueidislockLocker) tryLock(ctx context.Context, key string) (unlock, error) {
	held, err := unlockRueidislock(l.TryWithContext(ctx, key))
	if errors.Is(err, rueidislock.ErrNotLocked) {
		return nil, errHeld
	}
	return held, err
}

func unlockRueidislock(held context.Context, cancel context.CancelFunc, err error) (unlock, error) {
	if err != nil {
		return nil, err
	}
	return (&rueidislockLease{held, cancel}).release, nil
}

type rueidislockLease struct {
	held   context.Context
	cancel context.CancelFunc
}

func (l *rueidislockLease) lost() error { return l.held.Err() }

func (l *rueidislockLease) release(context.Context) error {
	lost := l.lost()
	l.cancel()
	return lost
}

func (l rueidislockLocker) close() { l.Close() }

func (l rueidislockLocker) abandon() error {
	l.Close()
	return nil
}
