package main

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	if isChild() {
		serve()
		return
	}
	os.Exit(m.Run())
}

// onOne runs a test on one server, with a context that has a timeout.
func onOne(t *testing.T, test func(context.Context, *nodes)) {
	ctx, cancel := context.WithTimeoutCause(t.Context(), 30*time.Second, errHung)
	defer cancel()
	if err := onNodes(1, 0, func(on *nodes) error {
		test(ctx, on)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// withPeer runs a test of a peer on one server. It runs the test once more if a peer other than lockkit hung. On a busy
// machine, rueidislock hangs once in a great while: it may forget a waiter whose wait just began, and then no release
// wakes the waiter.
func withPeer(t *testing.T, p peer, test func(context.Context, *nodes) error) {
	var err error
	for range 2 {
		onOne(t, func(ctx context.Context, on *nodes) { err = test(ctx, on) })
		if !mayHang(p, err) {
			break
		}
		t.Logf("%s: %v", p.name, err)
	}
	if err != nil {
		t.Error(err)
	}
}

func TestHandOver(t *testing.T) {
	for _, p := range allWaiting {
		t.Run(p.name, func(t *testing.T) {
			withPeer(t, p, func(ctx context.Context, on *nodes) error {
				return inProcesses(ctx, 1, 1, p, on, func(others []*process) error {
					l, err := p.open(ctx, on.addrs(), ttl)
					if err != nil {
						return err
					}
					defer l.close()
					unlock, err := l.lock(ctx, "key")
					if err != nil {
						return err
					}

					var wait Wait
					awaited := make(chan error, 1)
					go func() { awaited <- others[0].call(ctx, "Await", "key", &wait) }()
					select {
					case err := <-awaited:
						t.Errorf("another process waited for a held key: %+v, %v", wait, err)
						return nil
					case <-time.After(50 * time.Millisecond):
					}

					released := clock()
					if err := unlock(ctx); err != nil {
						return err
					}
					if err := <-awaited; err != nil {
						return err
					}
					if now := clock(); wait.Granted < released || wait.Released > now || wait.Begun > wait.Granted {
						t.Errorf("released at %v, and by now, %v, there is %+v", released, now, wait)
					}
					return nil
				})
			})
		})
	}
}

func TestThrong(t *testing.T) {
	for _, p := range slices.Concat(waitingPeers, wakingPeers) {
		t.Run(p.name, func(t *testing.T) {
			withPeer(t, p, func(ctx context.Context, on *nodes) error {
				passed, err := throng{lockers: 4, hold: time.Millisecond, measure: 300 * time.Millisecond}.run(ctx, p, on)
				if err == nil && (len(passed.shares) != 4 || passed.failures != nil) {
					t.Errorf("got %+v", passed)
				}
				return err
			})
		})
	}
}

func TestWaitersThatFail(t *testing.T) {
	onOne(t, func(ctx context.Context, on *nodes) {
		err := inProcesses(ctx, 2, 2, peer{name: "nobody"}, on, func([]*process) error { return nil })
		if err == nil {
			t.Error("there is no such peer")
		}
		failing := func([]*process) error { return errLost }
		if err := inProcesses(ctx, 1, 1, waitingPeers[0], on, failing); err == nil {
			t.Error("what is measured failed")
		}
	})
}

func TestProcessEndsWhileItWaits(t *testing.T) {
	onOne(t, func(ctx context.Context, on *nodes) {
		p := waitingPeers[0]
		l, err := p.open(ctx, on.addrs(), ttl)
		if err != nil {
			t.Fatal(err)
		}
		defer l.close()
		if _, err := l.lock(ctx, "key"); err != nil {
			t.Fatal(err)
		}
		awaited := make(chan error, 1)
		err = inProcesses(ctx, 1, 1, p, on, func(others []*process) error {
			go func() { awaited <- others[0].call(ctx, "Await", "key", new(Wait)) }()
			time.Sleep(50 * time.Millisecond) // it may wait by then, and ends in any case
			return nil
		})
		if err != nil {
			t.Errorf("it had to be killed: %v", err)
		}
		if err := <-awaited; err == nil {
			t.Error("a held key was granted")
		}
	})
}
