package testutil

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestSnapshotBringsBackEveryType(t *testing.T) {
	n := NewNodes(t, 1)[0]
	for _, c := range [][]any{
		{"SET", "string", "v"}, {"HSET", "hash", "f", "1", "g", "2"}, {"RPUSH", "list", "b", "a", "b"},
		{"SADD", "set", "x", "y"}, {"ZADD", "zset", "2", "x", "1", "y"},
	} {
		mustExec(t, n, c...)
	}

	look := func(n *Node) string {
		var all []any
		for _, c := range [][]any{
			{"KEYS", "*"}, {"GET", "string"}, {"HGET", "hash", "f"}, {"HGET", "hash", "g"}, {"LRANGE", "list", "0", "-1"},
			{"SMEMBERS", "set"}, {"ZRANGE", "zset", "0", "-1", "WITHSCORES"}, {"PTTL", "string"},
		} {
			all = append(all, mustExec(t, n, c...))
		}
		return fmt.Sprint(all)
	}

	want, s := look(n), n.Snapshot()
	for _, c := range [][]any{
		{"SET", "string", "later"}, {"HSET", "hash", "f", "later"}, {"RPUSH", "list", "later"},
		{"SREM", "set", "x"}, {"ZADD", "zset", "9", "y"}, {"SET", "new", "1", "PX", "1000"},
	} {
		mustExec(t, n, c...)
	}

	for _, restore := range []func(*Snapshot){n.RestartFrom, n.PromoteFrom, n.RestartFrom} {
		restore(s)
		if got := look(n); got != want {
			t.Errorf("restored %s, want %s", got, want)
		}
		mustExec(t, n, "HSET", "hash", "f", "later") // the snapshot must not change
		mustExec(t, n, "RPUSH", "list", "later")
		mustExec(t, n, "SADD", "set", "later")
	}

	other := NewNodes(t, 1)[0]
	other.RestartFrom(s)
	if got := look(other); got != want {
		t.Errorf("restored on another node %s, want %s", got, want)
	}
}

// Expiries in a snapshot are instants. A key whose expiry has passed meanwhile is not restored.
func TestSnapshotKeepsExpiries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := NewNodes(t, 1)[0]
		mustExec(t, n, "SET", "short", "v", "PX", "2000")
		mustExec(t, n, "SET", "long", "v", "PX", "5000")
		mustExec(t, n, "SET", "jump", "v", "PX", "9000000")
		s := n.Snapshot()
		time.Sleep(2 * time.Second)
		n.RestartFrom(s)
		if keys := n.Keys(); !slices.Equal(keys, []string{"jump", "long"}) {
			t.Errorf("keys %v", keys)
		}
		if got := mustExec(t, n, "PTTL", "long"); got != 3000 {
			t.Errorf("PTTL %v, want 3000", got)
		}
		n.StepClock(2 * time.Hour)
		n.RestartFrom(s)
		if keys := n.Keys(); !slices.Equal(keys, []string{"jump"}) {
			t.Errorf("keys %v while the clock is two hours ahead", keys)
		}
		n.StepClock(-2 * time.Hour)
		n.RestartFrom(s)
		if got := mustExec(t, n, "PTTL", "long"); got != 3000 {
			t.Errorf("PTTL %v when the clock is right again, want 3000", got)
		}
	})
}

func TestNodeRunsOnFromItsSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := NewNodes(t, 1)[0]
		n.RestartFrom(n.Snapshot()) // an empty snapshot
		mustExec(t, n, "SET", "k", "old")
		old := n.Snapshot()
		mustExec(t, n, "SET", "k", "new")
		n.SetReplica(true)
		n.PromoteFrom(old)
		if got := mustExec(t, n, "GET", "k"); got != "old" || field(t, n, "role") != "master" {
			t.Errorf("k is %v on a promoted %s", got, field(t, n, "role"))
		}
		mustExec(t, n, "SET", "k", "again", "PX", "1000")
		time.Sleep(time.Second)
		if got := mustExec(t, n, "GET", "k"); got != nil {
			t.Errorf("an expired key is %v", got)
		}
	})
}
