package core

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
	"github.com/lockkit/lockkit/testutil"
)

// A panic of an observer does not reach the caller, leaves the key free, and does not keep Close waiting.
func TestObserverPanics(t *testing.T) {
	ends := map[string]bool{"at the start": false, "at the end": true}
	for when, atEnd := range ends {
		kinds := map[string]OpKind{}
		for _, kind := range []OpKind{OpAcquire, OpHold, OpRelease} {
			kinds[kind.String()+" "+when] = kind
		}
		bubbles(t, 3, kinds, func(t *testing.T, w *world, kind OpKind) {
			panics := true
			boom := func(op Op, end bool) {
				if panics && op.Kind == kind && end == atEnd {
					panics = false
					panic("observer")
				}
			}
			p := w.process(WithObserver(Observer{Start: func(ctx context.Context, op Op) (context.Context, func(Outcome)) {
				boom(op, false)
				return ctx, func(Outcome) { boom(op, true) }
			}}))

			panicked, _ := recovered(func() error {
				return p.Do(t.Context(), "k", func(context.Context) error { return nil })
			})
			if panicked != nil || panics {
				t.Errorf("the panic of the observer: it did not come, %v; it reached the caller: %v", panics, panicked)
			}

			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			w.release(w.awaitUnder(ctx, p, "k"))
			if err := p.Close(ctx); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
	}
}

func TestObserverWithoutEnd(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		o := Observer{Start: func(ctx context.Context, op Op) (context.Context, func(Outcome)) { return ctx, nil }}
		p := w.process(WithObserver(o))
		lease := w.acquire(p, "k")
		time.Sleep(time.Minute)
		w.release(lease)
	})
}

// fn may release the lease long before it returns.
func TestReleaseInsideDo(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		if err := p.Do(t.Context(), "k", func(ctx context.Context) error {
			lease, _ := FromContext(ctx)
			w.release(lease)
			time.Sleep(time.Minute)
			return nil
		}); err != nil {
			t.Error(err)
		}
	})
}

func TestValidUntilOfALeaseThatIsOver(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p, other := w.process(), w.process()
		lease := w.acquire(p, "k")
		w.release(lease)
		w.acquire(other, "k")
		if left := time.Until(lease.ValidUntil()); left > 0 {
			t.Errorf("valid for another %v, while somebody else holds the key", left)
		}
	})
}

// In Go the timeout of a dial is context.DeadlineExceeded. The error of the call does not match that, because the
// caller's context has not ended.
func TestDialTimeoutIsNotTheCallers(t *testing.T) {
	clients := make([]redis.UniversalClient, 3)
	for i := range clients {
		clients[i] = redis.NewClient(&redis.Options{Addr: "blackhole", MaxRetries: -1, DialerRetries: 1,
			Dialer: func(context.Context, string, string) (net.Conn, error) { return nil, context.DeadlineExceeded }})
	}
	l, err := New(clients, quietly)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close(t.Context())
	_, err = l.TryAcquire(t.Context(), "k")
	wantErr(t, err, ErrUnavailable)
	if errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("reads as if the caller's context had ended: %v", err)
	}
	if !strings.Contains(err.Error(), "deadline exceeded") {
		t.Errorf("does not say what happened: %v", err)
	}
}

func TestProvisionAndClose(t *testing.T) {
	nodes := testutil.NewNodes(t, 3)
	for range 50 {
		l := must(New(testutil.Clients(nodes), quietly))
		var both sync.WaitGroup
		both.Go(func() { l.Provision(t.Context()) })
		both.Go(func() { l.Close(t.Context()) })
		both.Wait()
		wantErr(t, l.Provision(t.Context()), ErrClosed)
	}
}

// heldOnAServer returns a lease on a real server. The server already has the scripts to release it.
func heldOnAServer(t *testing.T) (redis.UniversalClient, *Locker, *Lease) {
	client := testutil.NewServers(t, 1)[0].Client()
	l := must(New([]redis.UniversalClient{client}, quietly, unhurried))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		l.Close(ctx) // the lease may still be held if the test has failed
	})
	lockAndUnlock(t, l, "warm")
	return client, l, must(l.Acquire(t.Context(), "k"))
}

// useUp limits the memory of a server to less than an empty server uses.
func useUp(t *testing.T, client redis.UniversalClient) {
	succeeds(t, client.ConfigSet(t.Context(), "maxmemory", "1").Err())
	if err := client.Set(t.Context(), "x", "y", 0).Err(); err == nil || !strings.HasPrefix(err.Error(), "OOM") {
		t.Fatalf("the server is not out of memory: %v", err)
	}
}

// A server that is out of memory still releases keys. With noeviction, this is the way in which servers are expected to
// fail.
func TestReleaseOnAServerOutOfMemory(t *testing.T) {
	t.Parallel()
	client, l, lease := heldOnAServer(t)
	useUp(t, client)
	if err := lease.Release(t.Context()); err != nil {
		t.Error(err)
	}
	if r := must(testutil.ParseResource(client.Get(t.Context(), l.e.Keys.Resource("k")).Val())); r.Expiry != 0 {
		t.Errorf("held by %s", r.Owner)
	}
}

// A renewal brings a lease back to a server that is out of memory.
func TestLeaseReturnsToAServerOutOfMemory(t *testing.T) {
	t.Parallel()
	client, l, lease := heldOnAServer(t)
	resource := l.e.Keys.Resource("k")
	succeeds(t, client.Del(t.Context(), resource).Err())
	renew := func() quorum.Vote { return lease.renewAlone(wire.NodeTimeOf(time.Now().Add(time.Minute))) }
	renew() // loads the script
	succeeds(t, client.Del(t.Context(), resource).Err())
	useUp(t, client)

	if v := renew(); v.Verdict != wire.Healed {
		t.Errorf("the renewal is %v: %v", v.Verdict, v.Err)
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Error(err)
	}
}
