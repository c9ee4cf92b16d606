package main

import (
	"context"
	"time"

	"github.com/lockkit/lockkit/core"
)

// lockkitWay locks on one Redis, or on a majority of several.
//
// A lease is renewed for as long as the work goes on. ctx ends when it is lost, before the key is granted again.
type lockkitWay struct{ locker *core.Locker }

func openLockkit(urls []string, ttl time.Duration) (*lockkitWay, error) {
	locker, err := core.Open(urls, core.TTL(ttl))
	return &lockkitWay{locker}, err
}

func (w *lockkitWay) Do(ctx context.Context, key string, work func(ctx context.Context, token uint64) error) error {
	return w.locker.Do(ctx, key, func(ctx context.Context) error {
		lease, _ := core.FromContext(ctx)
		return work(ctx, lease.FencingToken())
	})
}

func (w *lockkitWay) Close(ctx context.Context) error { return w.locker.Close(ctx) }
