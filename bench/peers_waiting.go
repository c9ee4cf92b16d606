package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
)

// waitingPeers are those that wait for a key that somebody else has, for as long as it takes.
var waitingPeers = []peer{
	{name: baseline, command: "set", open: openRedsyncWaiting},
	{name: "bsm/redislock", oneNode: true, open: openRedislockWaiting},
	{name: "rueidislock", oneNode: true, open: openRueidislock},
	{name: lockkitOpen, open: openLockkit},
}

// handoffPeers are those, and what a hand-off by publish takes at the least.
var handoffPeers = append(slices.Clone(waitingPeers), peer{name: "raw go-redis, publish", oneNode: true, command: "set", open: openRawPushed})

// allWaiting are all that other processes open.
var allWaiting = slices.Concat(handoffPeers, wakingPeers)

// waitingText says how they wait.
var waitingText = fmt.Sprintf(`redsync has as many tries as it takes, and its default pause; redislock asks again every
%v, as in its manual.`, redislockBackoff)

const redislockBackoff = 100 * time.Millisecond

// eachWaiting measures each of those peers that wait on n nodes, one after another on nodes that are new. It notes those
// that hang.
func eachWaiting(s *section, n int, of []peer, measure func(peer, *nodes) error) error {
	for _, p := range fitting(n, of) {
		err := onNodes(n, 0, func(on *nodes) error { return measure(p, on) })
		switch {
		case mayHang(p, err):
			s.notes = append(s.notes, fmt.Sprintf("%s, %s: %v", plural(n, "node"), p.name, err))
		case err != nil:
			return fmt.Errorf("%s, %s: %w", plural(n, "node"), p.name, err)
		}
	}
	return nil
}

func openRedsyncWaiting(_ context.Context, addrs []string, ttl time.Duration) (locker, error) {
	return newRedsync(addrs, redsync.WithExpiry(ttl), redsync.WithTries(math.MaxInt)), nil
}

type redislockWaiting struct{ *redislockLocker }

func openRedislockWaiting(ctx context.Context, addrs []string, ttl time.Duration) (locker, error) {
	l, err := openRedislock(ctx, addrs, ttl)
	if err != nil {
		return nil, err
	}
	return redislockWaiting{l.(*redislockLocker)}, nil
}

func (l redislockWaiting) lock(ctx context.Context, key string) (unlock, error) {
	// Without a deadline redislock gives up after the TTL.
	ctx, cancel := context.WithTimeout(ctx, time.Hour)
	defer cancel()
	lock, err := l.locks.Obtain(ctx, key, l.ttl, &redislock.Options{RetryStrategy: redislock.LinearBackoff(redislockBackoff)})
	if err != nil {
		return nil, err
	}
	return lock.Release, nil
}
