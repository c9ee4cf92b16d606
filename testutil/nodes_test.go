package testutil

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// An embedded node that listens is the same node for other processes, with all its faults.
func TestListen(t *testing.T) {
	n := StartNode()
	defer n.Close()
	addr, err := n.Listen()
	if err != nil {
		t.Fatal(err)
	}
	c := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, DisableIdentity: true})
	defer c.Close()
	if err := c.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if got, err := n.Exec("GET", "k"); err != nil || got != "v" {
		t.Errorf("the node has %v, %v", got, err)
	}
	n.Down()
	if err := c.Get(t.Context(), "k").Err(); err == nil {
		t.Error("the node answers although it is down")
	}
	n.Up()
	if got, err := c.Get(t.Context(), "k").Result(); err != nil || got != "v" {
		t.Errorf("up again: %q, %v", got, err)
	}
	n.Close()
	if err := c.Get(t.Context(), "k").Err(); err == nil || errors.Is(err, redis.Nil) {
		t.Errorf("closed: %v", err)
	}
	if _, err := n.Listen(); err == nil {
		t.Error("a closed node listens")
	}
}

// StartNodes works with redis-server and without.
func TestStartNodes(t *testing.T) {
	for _, path := range []string{"as it is", "empty"} {
		t.Run(path, func(t *testing.T) {
			if path == "empty" {
				t.Setenv("PATH", t.TempDir())
			}
			ns, err := StartNodes(2)
			if err != nil {
				t.Fatal(err)
			}
			defer ns.Close()
			for i, url := range ns.URLs() {
				answersAlone(t, ns.Kind, url, i)
			}

			if err := ns.RestartEmpty(0); err != nil {
				t.Fatal(err)
			}
			remembers(t, ns.URLs()[0], false)
			remembers(t, ns.URLs()[1], true)

			ns.Kill(1)
			c := redis.NewClient(&redis.Options{Addr: ns.Addrs[1], MaxRetries: -1, DisableIdentity: true})
			defer c.Close()
			if c.Ping(t.Context()).Err() == nil {
				t.Error("a node that was killed answers")
			}

			if err := ns.RestartEmpty(1); err != nil {
				t.Fatal(err)
			}
			remembers(t, ns.URLs()[1], false)
		})
	}
}

// answersAlone checks that the node is reached, and that it is no other node.
func answersAlone(t *testing.T, kind, url string, i int) {
	o, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	o.DisableIdentity = true
	c := redis.NewClient(o)
	defer c.Close()
	if err := c.Set(t.Context(), "node", i, 0).Err(); err != nil {
		t.Errorf("%s, %s: %v", kind, url, err)
	}
	if got, err := c.Get(t.Context(), "node").Int(); err != nil || got != i {
		t.Errorf("node %d answers for node %d, %v", i, got, err)
	}
}

// remembers checks whether a node has the key that answersAlone stored.
func remembers(t *testing.T, url string, want bool) {
	t.Helper()
	o, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	o.DisableIdentity = true
	c := redis.NewClient(o)
	defer c.Close()
	if n, err := c.Exists(t.Context(), "node").Result(); err != nil || (n == 1) != want {
		t.Errorf("%s has %d keys of one, %v", url, n, err)
	}
}

// Faults have the same effect on server processes and on embedded nodes.
func TestFaultsOfNodes(t *testing.T) {
	for _, path := range []string{"as it is", "empty"} {
		t.Run(path, func(t *testing.T) {
			if path == "empty" {
				t.Setenv("PATH", t.TempDir())
			}
			ns, err := StartNodes(1, "--appendonly", "yes")
			if err != nil {
				t.Fatal(err)
			}
			defer ns.Close()
			url := ns.URLs()[0]
			answersAlone(t, ns.Kind, url, 0)
			pauses(t, ns)
			remembers(t, url, true)
			ns.Kill(0)
			done(t, ns.Restart(0))
			remembers(t, url, true)
			done(t, ns.Flush(0))
			remembers(t, url, false)
		})
	}
}

func done(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// pauses checks that a paused node does not answer.
func pauses(t *testing.T, ns *Nodes) {
	t.Helper()
	err := ns.Pause(0)
	if errors.Is(err, errors.ErrUnsupported) {
		t.Log("processes cannot be paused here")
		return
	}
	done(t, err)
	impatient := redis.NewClient(&redis.Options{Addr: ns.Addrs[0], MaxRetries: -1, DisableIdentity: true, ReadTimeout: 50 * time.Millisecond})
	defer impatient.Close()
	if impatient.Ping(t.Context()).Err() == nil {
		t.Error("a paused node answers")
	}
	done(t, ns.Resume(0))
}
