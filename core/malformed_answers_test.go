package core

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/testutil"
)

// malformed has texts that a server may send in place of a reply. Not all are valid in the protocol of Redis.
var malformed = []string{
	"*0\r\n", "*1\r\n$9\r\nsubscribe\r\n", "*2\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n", "*3\r\n:1\r\n:2\r\n:3\r\n",
	"*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n$-1\r\n", "*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n$1\r\nx\r\n", "*3\r\n$10\r\nssubscribe\r\n$-1\r\n$-1\r\n",
	">3\r\n$9\r\nsubscribe\r\n*0\r\n*0\r\n", ">3\r\n$7\r\nmessage\r\n$-1\r\n$-1\r\n", ">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n*1\r\n:1\r\n",
	"*1\r\n$7\r\nmessage\r\n", ">4\r\n$8\r\npmessage\r\n:1\r\n:2\r\n:3\r\n", "*1\r\n$4\r\npong\r\n", "*2\r\n$4\r\npong\r\n:1\r\n", "*1\r\n*0\r\n", "*1\r\n$-1\r\n",
	">0\r\n", "~0\r\n", "%0\r\n", "%1\r\n*0\r\n:1\r\n", ":1\r\n", ":x\r\n", "$-1\r\n", "*-1\r\n", "_\r\n", "#t\r\n", ",1.5\r\n", "(1\r\n", "=4\r\ntxt:\r\n", "+OK\r\n",
	"$9223372036854775807\r\n", "*9223372036854775807\r\n", "%9223372036854775807\r\n", "$-2\r\n", "*-2\r\n", "!9223372036854775807\r\n",
	"-\r\n", "-ERR x\r\n", "-MOVED\r\n", "-MOVED 1\r\n", "-ASK x y\r\n", "\r\n", "HTTP/1.1 400 Bad Request\r\n\r\n", "\x00\x01\x02\r\n",
}

// clientsOf returns functions that make a Locker on servers: with Open, and with New and the user's clients.
func clientsOf(t *testing.T, addrs []string) map[string]func(opts ...Option) (*Locker, error) {
	urls := make([]string, len(addrs))
	for i, addr := range addrs {
		urls[i] = "redis://" + addr
	}
	return map[string]func(opts ...Option) (*Locker, error){
		"open": func(opts ...Option) (*Locker, error) { return Open(urls, opts...) },
		"a client": func(opts ...Option) (*Locker, error) {
			var clients []redis.UniversalClient
			for _, addr := range addrs {
				c := redis.NewClient(&redis.Options{Addr: addr})
				t.Cleanup(func() { c.Close() })
				clients = append(clients, c)
			}
			return New(clients, opts...)
		},
	}
}

// A malformed answer to a subscription, in New or during a wait, ends only that subscription. New may also fail if the
// answer is an error reply.
func TestMalformedAnswersToSubscriptions(t *testing.T) {
	r := onRedis(t, 1)
	holder := r.process(unhurried)
	var all sync.WaitGroup
	for _, reply := range malformed {
		var answered atomic.Int64
		proxy := testutil.NewProxy(t, r.servers[0].Addr())
		proxy.Mangle(testutil.ToClient, func(sent []byte) []byte {
			if !bytes.Contains(sent, []byte("subscribe\r\n")) {
				return sent
			}
			answered.Add(1)
			return []byte(reply)
		})

		for name, locker := range clientsOf(t, []string{proxy.Addr()}) {
			all.Go(func() { // in parallel, because they mostly wait
				l, err := locker(quietly, unhurried)
				if err != nil { // a lasting fault
					if !strings.HasPrefix(reply, "-") {
						t.Errorf("%s: %q: New: %v", name, reply, err)
					}
					return
				}
				waitsAndGets(t, holder, l, name+reply, &answered)
				if err := l.Close(t.Context()); err != nil {
					t.Errorf("%s: %q: Close: %v", name, reply, err)
				}
			})
		}
	}
	all.Wait()
}

// waitsAndGets makes l wait for a key that holder has. The key is released after one more answer to a subscription, and
// l must get it.
func waitsAndGets(t *testing.T, holder *process, l *Locker, key string, answered *atomic.Int64) {
	lease, err := holder.Acquire(t.Context(), key)
	if err != nil {
		t.Errorf("%q: %v", key, err)
		return
	}

	before, got := answered.Load(), make(chan error, 1)
	go func() {
		next, err := l.Acquire(context.Background(), key)
		if err == nil {
			err = next.Release(context.Background())
		}
		got <- err
	}()

	testutil.Await(t, "the waiter has subscribed", func() bool { return answered.Load() > before })
	if err := lease.Release(t.Context()); err != nil {
		t.Errorf("%q: %v", key, err)
	}

	err = <-got
	if strings.Contains(key, "-MOVED") && errors.Is(err, ErrUnavailable) && strings.Contains(err.Error(), "belongs to a Redis Cluster") {
		return // the node is found unfit before the key is free
	}
	if err != nil {
		t.Errorf("%q: %v", key, err)
	}
}

// If a server ends the subscription on its own, as it does when a slot has moved, the Locker subscribes again.
func TestSubscriptionThatIsTakenAway(t *testing.T) {
	r := onRedis(t, 1)
	holder := r.process(unhurried)
	proxy := testutil.NewProxy(t, r.servers[0].Addr())
	l, err := Open([]string{"redis://" + proxy.Addr()}, append(append([]Option{}, brief...), sturdy)...)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close(over())

	var confirmed atomic.Int64
	proxy.Mangle(testutil.ToClient, func(sent []byte) []byte {
		if !bytes.Contains(sent, []byte("subscribe\r\n")) || confirmed.Add(1) > 1 {
			return sent
		}
		taken := bytes.Replace(sent, []byte("$9\r\nsubscribe\r\n"), []byte("$11\r\nunsubscribe\r\n"), 1)
		return append(bytes.Clone(sent), taken...)
	})

	waitsAndGets(t, holder, l, "k", &confirmed)

	lease := r.acquire(holder, "k")
	done := make(chan error, 1)
	go func() {
		next, err := l.Acquire(context.Background(), "k")
		if err == nil {
			err = next.Release(context.Background())
		}
		done <- err
	}()

	testutil.Await(t, "subscribed again", func() bool { return confirmed.Load() > 1 })
	if err := lease.Release(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// If one server of three sends malformed answers to all requests, the others are a quorum. The server votes again when
// its answers are right again.
func TestOneServerSpeaksNonsense(t *testing.T) {
	r := onRedis(t, 3)
	proxy := testutil.NewProxy(t, r.servers[2].Addr())
	for name, locker := range clientsOf(t, []string{r.servers[0].Addr(), r.servers[1].Addr(), proxy.Addr()}) {
		l, err := locker(append(append([]Option{}, brief...), sturdy, WithRestartGuard(false))...)
		if err != nil {
			t.Fatal(err)
		}

		p := &process{Locker: l}
		for _, reply := range malformed {
			proxy.Mangle(testutil.ToClient, func([]byte) []byte { return []byte(reply) })
			proxy.Cut() // the client must connect and greet again
			lease := r.acquire(p, name+reply)
			if _, err := p.Inspect(t.Context(), lease.Key()); err != nil {
				t.Errorf("%s: %q: %v", name, reply, err)
			}
			p.Ready(t.Context())
			if err := lease.Release(t.Context()); err != nil {
				t.Errorf("%s: %q: %v", name, reply, err)
			}
			proxy.Mangle(testutil.ToClient, nil)
		}

		proxy.Cut()
		testutil.Await(t, "the server votes again", func() bool { return r.votes(p, 2, "back "+name) })
		if err := p.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// votes reports whether server i grants a key to p.
func (r *rig) votes(p *process, i int, key string) bool {
	lease, err := p.Acquire(r.Context(), key)
	if err != nil {
		return false
	}
	defer lease.Release(context.Background())
	for range 50 {
		if r.owner(i, key) == lease.name() {
			return true
		}
		time.Sleep(time.Millisecond)
	}
	return false
}

// panickingHook is a client hook that panics while on is set.
type panickingHook struct {
	coretest.CommandsOnly
	on atomic.Bool
}

func (h *panickingHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if h.on.Load() {
			var none []string
			_ = none[len(cmd.Args())]
		}
		return next(ctx, cmd)
	}
}

// A panic of a client becomes an error of the call, which names the place of the panic.
func TestClientThatPanics(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		var hook panickingHook
		p.e.Nodes[1].Client.(*redis.Client).AddHook(&hook)

		hook.on.Store(true)
		lease := w.acquire(p, "k")
		w.release(lease)
		_, err := p.Inspect(t.Context(), "k")
		if err != nil {
			t.Error(err)
		}

		for _, other := range []int{0, 2} { // the clients of all nodes panic, whichever replies end the round
			p.e.Nodes[other].Client.(*redis.Client).AddHook(&hook)
		}
		_, err = p.TryAcquire(t.Context(), "k")
		wantErr(t, err, ErrUnavailable)
		if !strings.Contains(err.Error(), "the client panicked") || !strings.Contains(err.Error(), "index out of range") || !strings.Contains(err.Error(), "panickingHook") {
			t.Errorf("%v", err)
		}
	})
}
