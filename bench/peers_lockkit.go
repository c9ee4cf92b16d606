package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
)

type lockkitLocker struct {
	*core.Locker
	clients []redis.UniversalClient // those that are not the Locker's own
}

// openLockkit has clients that lockkit makes.
func openLockkit(ctx context.Context, addrs []string, ttl time.Duration) (locker, error) {
	urls := make([]string, len(addrs))
	for i, addr := range addrs {
		urls[i] = "redis://" + addr
	}
	l, err := core.Open(urls, lockkitOptions(ttl)...)
	if err != nil {
		return nil, err
	}
	return provisioned(ctx, lockkitLocker{Locker: l})
}

// openLockkitWithClients has clients with go-redis' defaults.
func openLockkitWithClients(ctx context.Context, addrs []string, ttl time.Duration) (locker, error) {
	clients := make([]redis.UniversalClient, len(addrs))
	for i, addr := range addrs {
		clients[i] = redis.NewClient(&redis.Options{Addr: addr})
	}
	l, err := core.New(clients, lockkitOptions(ttl)...)
	if err != nil {
		lockkitLocker{clients: clients}.closeClients()
		return nil, err
	}
	return provisioned(ctx, lockkitLocker{l, clients})
}

// lockkitOptions are the defaults, but for the TTL and for what is logged while a node hangs.
func lockkitOptions(ttl time.Duration) []core.Option {
	return []core.Option{core.WithTTL(ttl), core.WithLogger(slog.New(slog.DiscardHandler))}
}

// provisioned declares the nodes new, so that no quarantine is measured.
func provisioned(ctx context.Context, l lockkitLocker) (locker, error) {
	if err := l.Provision(ctx); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

func (l lockkitLocker) lock(ctx context.Context, key string) (unlock, error) {
	lease, err := l.Acquire(ctx, key)
	if err != nil {
		return nil, err
	}
	return lease.Release, nil
}

func (l lockkitLocker) tryLock(ctx context.Context, key string) (unlock, error) {
	lease, err := l.TryAcquire(ctx, key)
	if errors.Is(err, core.ErrHeld) {
		return nil, errHeld
	}
	if err != nil {
		return nil, err
	}
	return lease.Release, nil
}

func (l lockkitLocker) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = l.Close(ctx) // names the keys of leases that a failed case left behind
	l.closeClients()
}

func (l lockkitLocker) closeClients() {
	for _, c := range l.clients {
		_ = c.Close()
	}
}
