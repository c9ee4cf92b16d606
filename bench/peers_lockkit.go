package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/admin"
)

type lockkitLocker struct {
	*core.Locker
	clients []redis.UniversalClient // those that are not the Locker's own
}

// openLockkit has clients that lockkit makes.
func openLockkit(ctx context.Context, addrs []string, ttl time.Duration) (locker, error) {
	l, err := core.Open(urls(addrs), lockkitOptions(ttl)...)
	if err != nil {
		return nil, err
	}
	return provisioned(ctx, lockkitLocker{Locker: l})
}

func urls(addrs []string) []string {
	all := make([]string, len(addrs))
	for i, addr := range addrs {
		all[i] = "redis://" + addr
	}
	return all
}

// visitLockkit has the restart guard where those have it that use all nodes.
func visitLockkit(addr string, nodes int, ttl time.Duration) (locker, error) {
	l, err := core.Open(urls([]string{addr}), append(lockkitOptions(ttl), core.WithRestartGuard(nodes >= 3))...)
	if err != nil {
		return nil, err
	}
	return lockkitLocker{Locker: l}, nil
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
	return []core.Option{core.TTL(ttl), core.WithLogger(slog.New(slog.DiscardHandler))}
}

// provisioned declares the nodes new, so that no quarantine is measured.
func provisioned(ctx context.Context, l lockkitLocker) (locker, error) {
	if err := admin.Provision(ctx, l.Locker); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

type lockkitLease struct{ *core.Lease }

func (l lockkitLease) lost() error {
	if ctx := l.Context(); ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

func (l lockkitLease) release(ctx context.Context) error { return l.Release(ctx) }

func (l lockkitLocker) hold(ctx context.Context, key string) (lease, error) {
	held, err := l.Acquire(ctx, key)
	if err != nil {
		return nil, err
	}
	return lockkitLease{held}, nil
}

func (l lockkitLocker) lock(ctx context.Context, key string) (unlock, error) {
	lease, err := l.Acquire(ctx, key)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error { return lease.Release(ctx) }, nil
}

func (l lockkitLocker) tryLock(ctx context.Context, key string) (unlock, error) {
	lease, err := l.TryAcquire(ctx, key)
	if errors.Is(err, core.ErrHeld) {
		return nil, errHeld
	}
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error { return lease.Release(ctx) }, nil
}

func (l lockkitLocker) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = l.Close(ctx) // names the keys of leases that a failed case left behind
	l.closeClients()
}

// abandon closes l with an ended context. That it says so is as it should be.
func (l lockkitLocker) abandon() error {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	err := l.Close(ctx)
	l.closeClients()
	switch {
	case err == nil:
		return errors.New("closed with an ended context, without a word on leases")
	case errors.Is(err, context.Canceled):
		return nil
	}
	return fmt.Errorf("closed with an ended context: %w", err)
}

func (l lockkitLocker) closeClients() {
	for _, c := range l.clients {
		_ = c.Close()
	}
}
