package main

import (
	"context"
	"errors"
	"testing"
	"time"
)

// waitFor makes one locker of a peer wait until another one has released the key.
func waitFor(t *testing.T, ctx context.Context, p peer, on *nodes) {
	t.Helper()
	open := func() locker {
		l, err := p.open(ctx, on.addrs(), ttl)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(l.close)
		return l
	}

	mine, theirs := open(), open()
	unlock, err := mine.lock(ctx, "key")
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	go func() {
		unlock, err := theirs.lock(ctx, "key")
		if err == nil {
			err = unlock(ctx)
		}
		got <- err
	}()

	select {
	case err := <-got:
		t.Fatalf("a held key: %v", err)
	case <-time.After(50 * time.Millisecond): // it waits by then, unless the machine is busy
	}

	if err := errors.Join(unlock(ctx), <-got); err != nil {
		t.Error(err)
	}
}

// Only the peer "lockkit, queue" puts its waiters into a queue. The other peers push to them without a queue.
func TestPushedHaveNoQueue(t *testing.T) {
	for _, p := range wakingPeers {
		t.Run(p.name, func(t *testing.T) {
			onOne(t, func(ctx context.Context, on *nodes) {
				waitFor(t, ctx, p, on)
				stats, err := on.admins[0].Info(ctx, "commandstats").Result()
				if err != nil {
					t.Fatal(err)
				}
				const rehearsals = 2 // each Locker tries its rights when it starts
				queued := calls(stats, "zadd") > rehearsals
				if want := p.name == "lockkit, queue"; queued != want {
					t.Errorf("in a queue: %v, want %v", queued, want)
				}
			})
		})
	}
}

// Every node reports that a key was released. A waiter tries once for each release.
func TestPushedOnceForEachRelease(t *testing.T) {
	l := &pushedLocker{wake: make(chan struct{}, 1)}
	woken := func() bool {
		select {
		case <-l.wake:
			return true
		default:
			return false
		}
	}
	for _, one := range []struct {
		payload string
		want    bool
	}{{"7", true}, {"7", false}, {"6", false}, {"8", true}, {"x", false}, {"8", false}} {
		if l.hear(one.payload); woken() != one.want {
			t.Errorf("after %q: woken %v, want %v", one.payload, !one.want, one.want)
		}
	}
}
