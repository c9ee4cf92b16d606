package testutil

import (
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

// listen subscribes to a channel and waits for the confirmation.
func listen(t *testing.T, c redis.UniversalClient, channel string) *redis.PubSub {
	t.Helper()
	return confirmed(t, c.Subscribe(t.Context(), channel))
}

func confirmed(t *testing.T, s *redis.PubSub) *redis.PubSub {
	t.Helper()
	t.Cleanup(func() { s.Close() })
	if got, err := s.ReceiveTimeout(t.Context(), patience); err != nil {
		t.Fatal(err)
	} else if _, ok := got.(*redis.Subscription); !ok {
		t.Fatalf("subscribed, and got %v", got)
	}
	return s
}

// heard returns the next message on the connection of s.
func heard(t *testing.T, s *redis.PubSub) string {
	t.Helper()
	got, err := s.ReceiveTimeout(t.Context(), patience)
	if err != nil {
		return err.Error()
	}
	m, ok := got.(*redis.Message)
	if !ok {
		return fmt.Sprint(got)
	}
	return m.Channel + ": " + m.Payload
}

// publish makes a node publish a message as a script does, and returns the number of receivers.
func publish(t *testing.T, c redis.UniversalClient, channel, message string) int64 {
	t.Helper()
	n, err := c.Eval(t.Context(), `return redis.call('PUBLISH', ARGV[1], ARGV[2])`, nil, channel, message).Int64()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A message reaches the connections that have subscribed to its channel in the same way, plain or sharded, and only
// those, as on Redis.
func TestPublishLikeRedis(t *testing.T) {
	for name, c := range map[string]redis.UniversalClient{"Redis": NewServers(t, 1)[0].Client(), "embedded": Clients(NewNodes(t, 1))[0]} {
		t.Run(name, func(t *testing.T) { publishLikeRedis(t, c) })
	}
}

func publishLikeRedis(t *testing.T, c redis.UniversalClient) {
	a := listen(t, c, "a")
	b := confirmed(t, c.SSubscribe(t.Context(), "b"))
	ab := listen(t, c, "a")
	if err := ab.SSubscribe(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	confirmed(t, ab)
	for _, p := range []struct {
		call string
		want int64
	}{{`'PUBLISH', 'a', '1'`, 2}, {`'SPUBLISH', 'b', '2'`, 2}, {`'PUBLISH', 'b', '3'`, 0}, {`'SPUBLISH', 'a', '4'`, 0}, {`'PUBLISH', 'c', '5'`, 0}, {`'PUBLISH', 'a', '6'`, 2}} {
		if got, err := c.Eval(t.Context(), "return redis.pcall("+p.call+")", nil).Int64(); got != p.want || err != nil {
			t.Errorf("%s: %d, %v, want %d", p.call, got, err, p.want)
		}
	}
	if got, err := c.Publish(t.Context(), "a", "7").Result(); got != 2 || err != nil {
		t.Errorf("PUBLISH: %d, %v, want 2", got, err)
	}
	hears(t, a, "a: 1", "a: 6", "a: 7")
	hears(t, b, "b: 2")
	hears(t, ab, "a: 1", "b: 2", "a: 6", "a: 7")
	if err := a.Unsubscribe(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	Await(t, "unsubscribed", func() bool { return publish(t, c, "a", "8") == 1 })
	ab.Close()
	Await(t, "closed", func() bool { return publish(t, c, "a", "9") == 0 })
}

// hears checks the next messages on the connection of s.
func hears(t *testing.T, s *redis.PubSub, messages ...string) {
	t.Helper()
	for _, want := range messages {
		if got := heard(t, s); got != want {
			t.Errorf("heard %q, want %q", got, want)
		}
	}
}

func TestDropMessages(t *testing.T) {
	inBubble(t, func(t *testing.T, n *Node, c *redis.Client) {
		s := listen(t, n.Client(), "a")
		n.DropMessages(true)
		n.Up()
		if got := publish(t, c, "a", "lost"); got != 1 {
			t.Errorf("%d have subscribed, want 1", got)
		}
		n.DropMessages(false)
		publish(t, c, "a", "kept")
		if got := heard(t, s); got != "a: kept" {
			t.Errorf("heard %q", got)
		}
	})
}

func TestBreakSubscriptions(t *testing.T) {
	inBubble(t, func(t *testing.T, n *Node, c *redis.Client) {
		s := listen(t, n.Client(), "a")
		before := n.connections()
		n.BreakSubscriptions()
		if got := n.connections(); got != before-1 {
			t.Errorf("%d connections, of %d, want one less", got, before)
		}
		if got := publish(t, c, "a", "to nobody"); got != 0 {
			t.Errorf("%d have subscribed, want none", got)
		}
		if _, err := s.ReceiveTimeout(t.Context(), patience); !errors.Is(err, io.EOF) {
			t.Errorf("broken: %v, want EOF", err)
		}
		confirmed(t, s) // go-redis subscribes again by itself
		if got := publish(t, c, "a", "again"); got != 1 {
			t.Errorf("%d have subscribed again, want 1", got)
		}
		if got := heard(t, s); got != "a: again" {
			t.Errorf("heard %q", got)
		}
	})
}

func (n *Node) connections() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.conns)
}

// Faults that end connections end subscriptions.
func TestSubscriptionsEndWithTheNode(t *testing.T) {
	for name, end := range map[string]func(*Node){"down": func(n *Node) { n.Down(); n.Up() }, "restart": (*Node).Restart, "empty": (*Node).RestartEmpty} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, n *Node, _ *redis.Client) {
				s := listen(t, n.Client(), "a")
				end(n)
				if got := publish(t, n.Client(), "a", "to nobody"); got != 0 {
					t.Errorf("%d have subscribed, want none", got)
				}
				if _, err := s.ReceiveTimeout(t.Context(), patience); !errors.Is(err, io.EOF) {
					t.Errorf("subscribed to a node that went away: %v, want EOF", err)
				}
			})
		})
	}
}

func TestMessagesAreAsSlowAsReplies(t *testing.T) {
	inBubble(t, func(t *testing.T, n *Node, c *redis.Client) {
		s := listen(t, n.Client(), "a")
		n.SlowReplies(time.Second)
		go c.Publish(t.Context(), "a", "late")
		synctest.Wait()
		if took := timed(func() { heard(t, s) }); took != time.Second {
			t.Errorf("a message took %v, want 1s", took)
		}
	})
}

func TestPubSubIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, n *Node, c *redis.Client) {
		const denied = "NOPERM User default has no permissions to run this"
		for _, command := range []string{"SUBSCRIBE", "SSUBSCRIBE", "PUBLISH"} {
			n.Refuse(command, denied)
		}
		for name, s := range map[string]*redis.PubSub{"SUBSCRIBE": c.Subscribe(t.Context(), "a"), "SSUBSCRIBE": c.SSubscribe(t.Context(), "a")} {
			if _, err := s.ReceiveTimeout(t.Context(), patience); err == nil || err.Error() != denied {
				t.Errorf("%s: %v", name, err)
			}
			s.Close()
		}
		if got, err := c.Eval(t.Context(), `return redis.pcall('PUBLISH', 'a', 'b').err`, nil).Text(); got != denied || err != nil {
			t.Errorf("PUBLISH in a script: %q, %v", got, err)
		}
		n.Refuse("SUBSCRIBE", "")
		listen(t, n.Client(), "a")
		patterns := c.PSubscribe(t.Context(), "a*")
		defer patterns.Close()
		if got, err := patterns.ReceiveTimeout(t.Context(), patience); err == nil {
			t.Errorf("PSUBSCRIBE: %v", got)
		}
	})
}
