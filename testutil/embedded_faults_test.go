package testutil

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

// timed returns how long f took on the bubble's clock.
func timed(f func()) time.Duration {
	start := time.Now()
	f()
	return time.Since(start)
}

// inBubble runs f with a node and a client that has an established connection.
func inBubble(t *testing.T, f func(t *testing.T, n *Node, c *redis.Client)) {
	synctest.Test(t, func(t *testing.T) {
		n := NewNodes(t, 1)[0]
		c := once(n)
		if err := c.Ping(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		f(t, n, c)
	})
}

func TestDown(t *testing.T) {
	both(t, func(t *testing.T) {
		n := NewNodes(t, 1)[0]
		conn, err := n.Dial(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		read := make(chan error, 1)
		go func() {
			_, err := conn.Read(make([]byte, 1))
			read <- err
		}()
		n.Down()
		if err := <-read; err != io.EOF {
			t.Errorf("Read of an established connection: %v, want EOF", err)
		}
		if _, err := conn.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
			t.Errorf("Write to an established connection: %v, want EPIPE", err)
		}
		c := once(n)
		if err := c.Ping(t.Context()).Err(); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("PING: %v, want ECONNREFUSED", err)
		}
		n.Up()
		if err := c.Ping(t.Context()).Err(); err != nil {
			t.Errorf("PING after Up: %v", err)
		}
	})
}

func TestHangHoldsRequestsUntilUp(t *testing.T) {
	inBubble(t, func(t *testing.T, n *Node, c *redis.Client) {
		n.Hang()
		result := make(chan error, 1)
		go func() { result <- c.Set(t.Context(), "waiting", 1, 0).Err() }()
		time.Sleep(4 * time.Second)
		select {
		case err := <-result:
			t.Fatalf("answered while hung: %v", err)
		default:
		}
		if keys := n.Keys(); len(keys) != 0 {
			t.Fatalf("executed while hung: %v", keys)
		}
		n.Up()
		if err := <-result; err != nil {
			t.Fatal(err)
		}
	})
}

func TestHungRequestExecutesAfterItsClientGaveUp(t *testing.T) {
	inBubble(t, func(t *testing.T, n *Node, c *redis.Client) {
		n.Hang()
		if err := c.Set(t.Context(), "late", 1, 0).Err(); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("SET: %v, want a timeout", err)
		}
		n.Up()
		synctest.Wait()
		if keys := n.Keys(); len(keys) != 1 {
			t.Errorf("keys %v; the request held back was not executed", keys)
		}
	})
}

func TestHungDialSucceeds(t *testing.T) {
	both(t, func(t *testing.T) {
		n := NewNodes(t, 1)[0]
		n.Hang()
		if _, err := n.Dial(t.Context(), "", ""); err != nil {
			t.Error(err)
		}
	})
}

func TestDownForgetsHungRequests(t *testing.T) {
	inBubble(t, func(t *testing.T, n *Node, c *redis.Client) {
		n.Hang()
		result := make(chan error, 1)
		go func() { result <- c.Set(t.Context(), "k", 1, 0).Err() }()
		synctest.Wait()
		n.Down()
		if err := <-result; err == nil {
			t.Error("SET succeeded")
		}
		n.Up()
		synctest.Wait()
		if keys := n.Keys(); len(keys) != 0 {
			t.Errorf("keys %v", keys)
		}
	})
}

func TestSlow(t *testing.T) {
	inBubble(t, func(t *testing.T, n *Node, c *redis.Client) {
		n.Slow(2 * time.Second)
		if took := timed(func() { c.Set(t.Context(), "k", 1, 0) }); took != 2*time.Second {
			t.Errorf("SET took %v", took)
		}

		// A pipeline is several requests.
		took := timed(func() {
			_, err := c.Pipelined(t.Context(), func(p redis.Pipeliner) error {
				p.Incr(t.Context(), "n")
				p.Incr(t.Context(), "n")
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
		if took != 2*2*time.Second {
			t.Errorf("a pipeline of two took %v", took)
		}

		n.Slow(time.Second)
		start := time.Now()
		go func() { c.Set(t.Context(), "late", 1, 0) }()
		time.Sleep(999 * time.Millisecond)
		if mustExec(t, n, "EXISTS", "late") != 0 {
			t.Errorf("executed after %v already", time.Since(start))
		}
		time.Sleep(2 * time.Millisecond)
		if mustExec(t, n, "EXISTS", "late") != 1 {
			t.Errorf("not executed after %v", time.Since(start))
		}

		n.Up()
		if took := timed(func() { c.Ping(t.Context()) }); took != 0 {
			t.Errorf("PING took %v after Up", took)
		}
	})
}

func TestSlowReplies(t *testing.T) {
	inBubble(t, func(t *testing.T, n *Node, c *redis.Client) {
		n.SlowReplies(2 * time.Second)
		result := make(chan time.Duration, 1)
		go func() { result <- timed(func() { c.Set(t.Context(), "k", 1, 0) }) }()
		synctest.Wait()
		if len(n.Keys()) != 1 {
			t.Error("not executed at once")
		}
		if took := <-result; took != 2*time.Second {
			t.Errorf("SET took %v", took)
		}
		go func() { result <- timed(func() { c.Set(t.Context(), "k", 1, 0) }) }()
		time.Sleep(time.Second)
		n.Up()
		if took := <-result; took != time.Second {
			t.Errorf("SET took %v, although Up came after 1s", took)
		}
	})
}

func TestDropRepliesExecutesOnce(t *testing.T) {
	both(t, func(t *testing.T) {
		n := NewNodes(t, 1)[0]
		n.DropReplies(2)
		c := once(n) // not connected: its handshake must not use up the drops
		for i := range 2 {
			if err := c.Incr(t.Context(), "n").Err(); !errors.Is(err, io.EOF) {
				t.Fatalf("INCR %d: %v, want EOF", i, err)
			}
			if got := mustExec(t, n, "GET", "n"); got != string(rune('1'+i)) {
				t.Fatalf("INCR %d executed to %v", i, got)
			}
		}
		if got, err := c.Incr(t.Context(), "n").Result(); err != nil || got != 3 {
			t.Errorf("the third INCR: %d, %v", got, err)
		}
	})
}

func TestOnRequest(t *testing.T) {
	for _, tc := range []onRequest{
		{"pass", Action{}, false, 1, "1", 0},
		{"delay", Action{Delay: time.Second}, false, 1, "1", time.Second},
		{"delay beyond timeout", Action{Delay: 8 * time.Second}, true, 0, "1", 5 * time.Second},
		{"drop request", Action{DropRequest: true}, true, 0, "", 5 * time.Second},
		{"drop reply", Action{DropReply: true}, true, 0, "1", 5 * time.Second},
		{"reply delay", Action{ReplyDelay: time.Second}, false, 1, "1", time.Second},
		{"twice", Action{Twice: true}, false, 2, "2", 0},
	} {
		t.Run(tc.name, func(t *testing.T) { inBubble(t, tc.test) })
	}
}

// onRequest is an action and its effect on an INCR.
type onRequest struct {
	name    string
	action  Action
	timeout bool
	result  int64
	final   string // the final value of the counter
	took    time.Duration
}

func (tc onRequest) test(t *testing.T, n *Node, _ *redis.Client) {
	var seen atomic.Int64
	n.OnRequest(func(args []string) Action {
		seen.Add(1)
		if args[0] != "INCR" || args[1] != "n" {
			t.Errorf("hook saw %v", args)
		}
		return tc.action
	})
	c, other := once(n), once(n)
	var result int64
	var err error
	took := timed(func() { result, err = c.Incr(t.Context(), "n").Result() })
	if timeout := errors.Is(err, os.ErrDeadlineExceeded); timeout != tc.timeout || result != tc.result {
		t.Errorf("INCR: %d, %v; want %d, timeout %v", result, err, tc.result, tc.timeout)
	}
	if took != tc.took {
		t.Errorf("took %v, want %v", took, tc.took)
	}
	n.OnRequest(nil)
	if took := timed(func() { other.Get(t.Context(), "n") }); took != 0 {
		t.Errorf("another connection was held up for %v", took)
	}
	time.Sleep(10 * time.Second)
	if got, _ := mustExec(t, n, "GET", "n").(string); got != tc.final {
		t.Errorf("n is %q at last, want %q", got, tc.final)
	}
	if seen.Load() != 1 {
		t.Errorf("the hook was called %d times", seen.Load())
	}
}

func TestNothingArrivesAfterADroppedRequest(t *testing.T) {
	inBubble(t, func(t *testing.T, n *Node, c *redis.Client) {
		n.OnRequest(func(args []string) Action {
			return Action{DropRequest: args[1] == "lost"}
		})
		_, _ = c.Pipelined(t.Context(), func(p redis.Pipeliner) error {
			for _, key := range []string{"before", "lost", "after"} {
				p.Set(t.Context(), key, 1, 0)
			}
			return nil
		})
		if keys := n.Keys(); !slices.Equal(keys, []string{"before"}) {
			t.Errorf("keys %v", keys)
		}
	})
}

func TestDelaysAreIndependentBetweenConnections(t *testing.T) {
	inBubble(t, func(t *testing.T, n *Node, c *redis.Client) {
		n.OnRequest(func(args []string) Action {
			if args[1] == "slow" {
				return Action{Delay: 3 * time.Second}
			}
			return Action{}
		})
		done := make(chan struct{})
		go func() {
			defer close(done)
			c.Set(t.Context(), "slow", 1, 0)
		}()
		synctest.Wait()
		if took := timed(func() { c.Set(t.Context(), "fast", 1, 0) }); took != 0 {
			t.Errorf("held up for %v", took)
		}
		<-done
	})
}

func TestFaultsSpareScriptsCommands(t *testing.T) {
	inBubble(t, func(t *testing.T, n *Node, c *redis.Client) {
		n.Slow(time.Second)
		var seen atomic.Int64
		n.OnRequest(func([]string) Action { seen.Add(1); return Action{} })
		took := timed(func() {
			err := c.Eval(t.Context(), "redis.call('SET', 'a', 1); return redis.call('GET', 'a')", nil).Err()
			if err != nil {
				t.Error(err)
			}
		})
		if took != time.Second || seen.Load() != 1 {
			t.Errorf("a script with two commands took %v and was seen %d times", took, seen.Load())
		}
	})
}

func TestRestartLosesRequestsUnderWay(t *testing.T) {
	inBubble(t, func(t *testing.T, n *Node, c *redis.Client) {
		n.OnRequest(func([]string) Action { return Action{Delay: time.Second} })
		result := make(chan error, 1)
		go func() { result <- c.Set(t.Context(), "k", 1, 0).Err() }()
		synctest.Wait()
		n.RestartEmpty()
		if err := <-result; !errors.Is(err, io.EOF) {
			t.Errorf("SET: %v, want EOF", err)
		}
		time.Sleep(2 * time.Second)
		if keys := n.Keys(); len(keys) != 0 {
			t.Errorf("the old connection wrote %v", keys)
		}
	})
}

func TestContextEndsWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := NewNodes(t, 1)[0]
		n.Hang()
		c := n.ClientWith(func(o *redis.Options) { o.ContextTimeoutEnabled = true })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if took := timed(func() { c.Get(ctx, "k") }); took != time.Second {
			t.Errorf("took %v", took)
		}
	})
}
