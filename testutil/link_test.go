package testutil

import (
	"context"
	"errors"
	"os"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

// linked runs f in a bubble with a node, a Link, a client that uses the Link, and a client that does not.
func linked(t *testing.T, f func(t *testing.T, n *Node, k *Link, c, other *redis.Client)) {
	t.Helper()
	inBubble(t, func(t *testing.T, n *Node, other *redis.Client) {
		k, c := &Link{}, once(n)
		c.AddHook(k)
		set(t, c, nil, 0)
		f(t, n, k, c, other)
	})
}

// set sets a key, and checks the error and the time that it takes.
func set(t *testing.T, c *redis.Client, want error, takes time.Duration) {
	t.Helper()
	var err error
	took := timed(func() { err = c.Set(t.Context(), "k", 1, 0).Err() })
	if !errors.Is(err, want) || took != takes {
		t.Errorf("SET: %v after %v, want %v after %v", err, took, want, takes)
	}
}

const reads = 5 * time.Second // go-redis's timeout

func TestLinkCut(t *testing.T) {
	linked(t, func(t *testing.T, n *Node, k *Link, c, other *redis.Client) {
		n.Flush()
		k.Cut()
		set(t, c, os.ErrDeadlineExceeded, reads)
		set(t, c, os.ErrDeadlineExceeded, reads) // on a new connection
		if keys := n.Keys(); len(keys) > 0 {
			t.Errorf("keys %v", keys)
		}
		set(t, other, nil, 0)

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		heeding := n.ClientWith(func(o *redis.Options) { o.MaxRetries, o.ContextTimeoutEnabled = -1, true })
		heeding.AddHook(k)
		if took := timed(func() { heeding.Get(ctx, "k") }); took != time.Second {
			t.Errorf("a request whose context ended after 1s took %v", took)
		}

		k.Restore()
		k.Restore()
		n.Flush()
		set(t, c, nil, 0)
		time.Sleep(time.Minute)
		if _, err := n.Exec("GET", "k"); err != nil {
			t.Error(err)
		}
	})
}

// A connection that was idle while its Link was cut is as dead as a connection that was used, and the pool notices
// that.
func TestLinkMendResetsIdleConnections(t *testing.T) {
	linked(t, func(t *testing.T, _ *Node, k *Link, c, _ *redis.Client) {
		k.Cut()
		k.Restore()
		set(t, c, nil, 0)
		if got := c.PoolStats(); got.StaleConns != 1 {
			t.Errorf("%d connections were stale", got.StaleConns)
		}
	})
}

// A request that is under way when the Link is cut is executed. It gets no answer, even if the Link is restored.
func TestLinkCutUnderWay(t *testing.T) {
	for name, end := range map[string]func(k *Link){
		"cut":    (*Link).Cut,
		"mended": func(k *Link) { k.Cut(); time.Sleep(time.Millisecond); k.Restore() },
		"killed": (*Link).Kill,
	} {
		t.Run(name, func(t *testing.T) {
			linked(t, func(t *testing.T, n *Node, k *Link, c, _ *redis.Client) {
				n.Flush()
				n.SlowReplies(time.Second)
				answer := make(chan error, 1)
				go func() { answer <- c.Set(t.Context(), "k", 1, 0).Err() }()
				synctest.Wait()
				end(k)
				want := syscall.ECONNRESET
				err := Receive(t, answer)
				if name == "cut" && !errors.Is(err, os.ErrDeadlineExceeded) || name != "cut" && !errors.Is(err, want) {
					t.Errorf("answered %v", err)
				}
				if keys := n.Keys(); len(keys) != 1 {
					t.Errorf("keys %v", keys)
				}
			})
		})
	}
}

// A Link also cuts off subscriptions, although they do not pass the hooks of requests.
func TestLinkCutSubscriptions(t *testing.T) {
	linked(t, func(t *testing.T, n *Node, k *Link, c, other *redis.Client) {
		s := listen(t, c, "a")
		publish(t, other, "a", "1")
		if got := heard(t, s); got != "a: 1" {
			t.Errorf("heard %q", got)
		}

		k.Cut()
		if got := publish(t, other, "a", "2"); got != 1 {
			t.Errorf("the node knows %d subscribers, and cannot know that one is cut off", got)
		}
		n.BreakSubscriptions() // the client does not notice this either
		took := timed(func() {
			if got, err := s.ReceiveTimeout(t.Context(), time.Minute); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("heard %v, %v", got, err)
			}
		})
		if took != time.Minute {
			t.Errorf("took %v", took)
		}

		k.Restore()
		s = listen(t, c, "a")
		publish(t, other, "a", "3")
		if got := heard(t, s); got != "a: 3" {
			t.Errorf("heard %q", got)
		}

		k.Kill()
		if _, err := s.ReceiveTimeout(t.Context(), time.Minute); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("of a dead process: %v", err)
		}
	})
}

// A killed Link stays dead. A request that is repeated at once takes time, so that time passes in a bubble.
func TestLinkKill(t *testing.T) {
	linked(t, func(t *testing.T, n *Node, k *Link, c, other *redis.Client) {
		k.Kill()
		n.Flush()
		k.Restore()
		k.Cut()
		k.Restore()
		for start := time.Now(); time.Since(start) < time.Second; {
			if err := c.Set(t.Context(), "k", 1, 0).Err(); !errors.Is(err, syscall.ECONNRESET) {
				t.Fatal(err)
			}
		}
		if keys := n.Keys(); len(keys) > 0 {
			t.Errorf("keys %v", keys)
		}
		set(t, other, nil, 0)
	})
}

func TestLinkLose(t *testing.T) {
	linked(t, func(t *testing.T, n *Node, k *Link, _, _ *redis.Client) {
		c := once(n) // its handshake does not count
		c.AddHook(k)
		k.Lose(2)
		if err := c.Incr(t.Context(), "n").Err(); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the first INCR: %v", err)
		}
		cmds, err := c.TxPipelined(t.Context(), func(p redis.Pipeliner) error {
			p.Incr(t.Context(), "n")
			p.Incr(t.Context(), "n")
			return nil
		})
		if !errors.Is(err, syscall.ECONNRESET) || !errors.Is(cmds[1].Err(), syscall.ECONNRESET) {
			t.Errorf("the pipeline: %v", err)
		}
		if got, err := c.Incr(t.Context(), "n").Result(); got != 4 || err != nil {
			t.Errorf("the last INCR: %d, %v", got, err)
		}
		k.Lose(1)
		k.Lose(0)
		if got, err := c.Incr(t.Context(), "n").Result(); got != 5 || err != nil {
			t.Errorf("nothing to lose: %d, %v", got, err)
		}
	})
}

func TestLinkOnRequest(t *testing.T) {
	for _, tc := range []struct {
		name   string
		action Action
		err    error
		result int64
		final  string
		took   time.Duration
	}{
		{"pass", Action{}, nil, 1, "1", 0},
		{"delay", Action{Delay: time.Second}, nil, 1, "1", time.Second},
		{"drop request", Action{DropRequest: true}, os.ErrDeadlineExceeded, 0, "", reads},
		{"drop reply", Action{DropReply: true}, os.ErrDeadlineExceeded, 1, "1", reads},
		{"reply delay", Action{ReplyDelay: time.Second}, nil, 1, "1", time.Second},
		{"twice", Action{Twice: true, Delay: time.Second}, nil, 2, "2", time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			linked(t, func(t *testing.T, n *Node, k *Link, c, other *redis.Client) {
				var seen []string
				k.OnRequest(func(cmd redis.Cmder) Action {
					seen = append(seen, cmd.Name())
					return tc.action
				})

				var result int64
				var err error
				took := timed(func() { result, err = c.Incr(t.Context(), "n").Result() })
				if !errors.Is(err, tc.err) || result != tc.result || took != tc.took {
					t.Errorf("INCR: %d, %v after %v", result, err, took)
				}
				if got, _ := mustExec(t, n, "GET", "n").(string); got != tc.final {
					t.Errorf("n is %q", got)
				}
				if !slices.Equal(seen, []string{"incr"}) {
					t.Errorf("seen %v", seen)
				}

				k.OnRequest(nil)
				set(t, c, nil, 0)
			})
		})
	}
}

// A dropped request waits only until its context ends, the cut ends, or the process dies.
func TestLinkDroppedRequest(t *testing.T) {
	for name, end := range map[string]func(k *Link, cancel func()){
		"context": func(_ *Link, cancel func()) { cancel() },
		"mend":    func(k *Link, _ func()) { k.Restore() },
		"kill":    func(k *Link, _ func()) { k.Kill() },
	} {
		t.Run(name, func(t *testing.T) {
			linked(t, func(t *testing.T, _ *Node, k *Link, c, _ *redis.Client) {
				k.OnRequest(func(redis.Cmder) Action { return Action{DropRequest: true} })
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				time.AfterFunc(time.Second, func() { end(k, cancel) })
				if took := timed(func() { c.Get(ctx, "k") }); took != time.Second {
					t.Errorf("took %v", took)
				}
			})
		})
	}
}

// A reply that is under way when the Link is cut does not arrive.
func TestLinkCutDuringReplyDelay(t *testing.T) {
	linked(t, func(t *testing.T, _ *Node, k *Link, c, _ *redis.Client) {
		k.OnRequest(func(redis.Cmder) Action { return Action{ReplyDelay: 2 * time.Second} })
		time.AfterFunc(time.Second, k.Cut)
		set(t, c, os.ErrDeadlineExceeded, 2*time.Second+reads)
	})
}

// A client may have a Link of its own and a Link of its process. Either of them cuts it off.
func TestLinksInARow(t *testing.T) {
	linked(t, func(t *testing.T, n *Node, k *Link, c, _ *redis.Client) {
		var own Link
		both := once(n)
		both.AddHook(k)
		both.AddHook(&own)
		set(t, both, nil, 0)
		own.Cut()
		set(t, both, os.ErrDeadlineExceeded, reads)
		set(t, c, nil, 0)
		own.Restore()
		k.Cut()
		set(t, both, os.ErrDeadlineExceeded, reads)
		k.Restore()
		set(t, both, nil, 0)
	})
}

// A Link works on servers as it does on embedded nodes.
func TestLinkToServer(t *testing.T) {
	t.Parallel()
	var k Link
	c := NewServers(t, 1)[0].ClientWith(func(o *redis.Options) {
		o.MaxRetries, o.ContextTimeoutEnabled = -1, true
	})
	c.AddHook(&k)
	get := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		return c.Get(ctx, "k").Err()
	}
	Await(t, "an answer", func() bool { return errors.Is(get(), redis.Nil) })
	k.Cut()
	if err := get(); !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("cut: %v", err)
	}
	k.Restore()
	Await(t, "an answer", func() bool { return errors.Is(get(), redis.Nil) })
	k.Kill()
	if err := c.Get(t.Context(), "k").Err(); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("killed: %v", err)
	}
}
