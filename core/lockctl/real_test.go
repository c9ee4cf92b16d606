package main

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/testutil"
)

// Every command runs on three real servers. One of them is killed on the way.
func TestOnRealServers(t *testing.T) {
	t.Parallel()
	servers := testutil.NewServers(t, 3)
	var urls []string
	for _, s := range servers {
		urls = append(urls, "redis://"+s.Addr())
	}
	env := map[string]string{"LOCKKIT_NODES": strings.Join(urls, ","), "LOCKKIT_PREFIX": "real[1]:"}
	well := func(args ...string) string {
		t.Helper()
		got := answered(t, env, args...)
		if got.code != exitOK || got.err != "" {
			t.Fatalf("lockctl %v: %+v", args, got)
		}
		return got.out
	}
	want := func(out string, texts ...string) {
		t.Helper()
		for _, text := range texts {
			if !strings.Contains(out, text) {
				t.Errorf("no %q in\n%s", text, out)
			}
		}
	}
	// On a busy machine, requests may be slow. So the lease is long, and lockctl's own timeout follows from its TTL.
	opts := []core.Option{core.WithKeyPrefix("real[1]:"), core.TTL(time.Minute), core.Note("billing-7f9")}
	want(well("provision", "--max-ttl", "1m"), "3 nodes: every one votes.")
	func() {
		long, err := core.Open(urls, append(opts, core.TTL(time.Hour))...)
		if err != nil {
			t.Fatal(err)
		}
		defer long.Close(t.Context())
		lease := succeeded(t, func() (*core.Lease, error) { return long.Acquire(t.Context(), "order:41") })
		onAll := func() bool { return strings.Contains(answered(t, env, "ls").out, "3/3") }
		testutil.Await(t, "the lease is on every node", onAll)
		got := answered(t, env, "lower-max-ttl", "--max-ttl", "1m")
		if got.code != exitProblem {
			t.Errorf("%+v", got)
		}
		want(got.err, "not lowered, because each lease has to end within 1m", "order:41 is leased for another ")
		if err := lease.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	want(well("doctor", "--max-ttl", "1m"), "longer_max_ttl", "1h, heard of ")
	want(well("lower-max-ttl", "--max-ttl", "1m"), "is 1m now, and was 1h")
	locks, err := core.Open(urls, opts...)
	if err != nil {
		t.Fatal(err)
	}

	over, stop := context.WithCancel(t.Context())
	stop()
	t.Cleanup(func() { locks.Close(over) })
	lease := succeeded(t, func() (*core.Lease, error) { return locks.Acquire(t.Context(), "order:42") })
	everywhere := func() bool { return strings.Contains(answered(t, env, "ls").out, "3/3") }
	testutil.Await(t, "the lease is on every node", everywhere)

	want(well("ready", "--max-ttl", "1m"), "Ready")
	want(well("ls"), "order:42", "billing-7f9", "held")
	want(well("ls", "order:[0-9]*"), "order:42")
	want(well("show", "order:42"), "order:42 is held.", "billing-7f9")
	want(well("leaks"), "No leaks.")
	want(well("doctor", "--max-ttl", "1m"), servers[0].Addr(), "yes")
	for _, args := range [][]string{{"ready"}, {"ls"}, {"show", "order:42"}, {"leaks"}, {"doctor"}, {"provision"}} {
		wantJSON(t, well(append(args, "-o", "json", "--max-ttl", "1m")...))
	}

	servers[1].Kill()
	gone := "node 1 (" + servers[1].Addr() + ")"
	want(well("ready", "--max-ttl", "1m"), "Ready")
	want(well("show", "order:42"), "order:42 is held.", "refused", "Without node 1 the others are still a quorum.")
	for _, c := range []struct {
		args     []string
		out, err string
	}{
		{[]string{"ls"}, "order:42", gone},
		{[]string{"leaks"}, "No leaks in what was read.", gone},
		{[]string{"doctor", "--max-ttl", "1m"}, "FAULT   node 1 " + servers[1].Addr(), ""},
		{[]string{"provision", "--timeout", "2s"}, "", ""},
	} {
		got := answered(t, env, c.args...)
		if got.code != exitProblem {
			t.Errorf("lockctl %v: %+v", c.args, got)
		}
		want(got.out, c.out)
		want(got.err, c.err)
	}
	releaseForReal(t, env, lease, servers[1], func() *core.Locker {
		// The process of the old holder learns of the release at its next renewal.
		l, err := core.Open(urls, opts...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close(over) })
		return l
	}())
}

// releaseForReal takes a key from its holder while a server is down, and drops completion records of another process.
func releaseForReal(t *testing.T, env map[string]string, lease *core.Lease, down *testutil.Server, others *core.Locker) {
	t.Helper()
	token := strconv.FormatUint(lease.FencingToken(), 10)
	if got := answered(t, env, "release", "order:42", "--token", "7"); got.code != exitProblem || !strings.Contains(got.err, "order:42 is held with token "+token) {
		t.Errorf("%+v", got)
	}
	out := ctl(t, env, "release", "order:42", "--token", token).out
	wantParts(t, out, "order:42 is taken from its holder (billing-7f9, token "+token+"), and free in ", "node 1 ("+down.Addr()+") has not confirmed: ")

	done := succeeded(t, func() (*core.Lease, error) { return others.Acquire(t.Context(), "order:44") })
	token = strconv.FormatUint(done.FencingToken(), 10)
	succeeded(t, func() (any, error) { return nil, done.Complete(t.Context(), []byte("sent")) })
	if got := answered(t, env, "forget-record", "order:44", "--token", token); got.code != exitProblem || !strings.Contains(got.err, "call again when more nodes answer") {
		t.Errorf("a record that a node may have: %+v", got)
	}

	if err := down.Restart(); err != nil {
		t.Fatal(err)
	}
	if out := answered(t, env, "show", "order:44").out; strings.Contains(out, "is completed") {
		t.Error(out)
	}

	lease = succeeded(t, func() (*core.Lease, error) { return others.Acquire(t.Context(), "order:43") })
	succeeded(t, func() (any, error) { return nil, lease.Complete(t.Context(), nil) })
	token = strconv.FormatUint(lease.FencingToken(), 10)
	wantParts(t, answered(t, env, "show", "order:43").out, "is completed", "token "+token)
	if got := ctl(t, env, "forget-record", "order:43", "--token", token); got.code != exitOK {
		t.Errorf("%+v", got)
	}
	wantParts(t, answered(t, env, "show", "order:43").out, "order:43 is free.")
}
