package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
)

func TestNoLeaks(t *testing.T) {
	atDesk(t, 3, func(t *testing.T, d *desk) {
		l := d.service()
		d.acquire(l, "held")
		d.waiting("held")
		d.release(d.acquire(l, "resting"))
		d.release(d.acquire(l, "kept"), core.Cooldown(time.Hour))
		if err := d.acquire(l, "done", core.Retention(1000*time.Hour)).Complete(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if out := d.well("leaks"); out != "No leaks.\n" {
			t.Error(out)
		}
		if got := decoded[leaksJSON](t, d.well("leaks", "-o", "json")); len(got.Leaks) != 0 || len(got.Found) != 0 {
			t.Errorf("%+v", got)
		}
	})
}

// leaks finds the keys that were planted, but not the guard record.
func TestLeaks(t *testing.T) {
	atDesk(t, 3, func(t *testing.T, d *desk) {
		l := d.service()
		d.acquire(l, "forever")
		d.exec(1, "PERSIST", "lockkit:{0}r:forever")
		d.exec(0, "SET", "lockkit:{0}x:attempt", "1")
		d.exec(0, "ZADD", "lockkit:{0}w:forever", 1, "P lockkit:{0}c:x y")
		d.exec(2, "SET", "lockkit:theirs", "x", "PX", 60000)
		d.exec(2, "SET", "elsewhere", "x")

		got := d.ctl("leaks")
		if got.code != exitProblem || got.err != "" || strings.Contains(got.out, "{0}g") {
			t.Errorf("%+v", got)
		}
		wantParts(t, steady(got.out), "WHAT  NODE  ADDRESS  KEY IN REDIS  PEXPIRE", "\nno expiry  1  host", "\nnot lockkit's  2  host", "3 keys, no expiry: ", "PEXPIRE KEY", "1 key, not lockkit's: ")

		j := decoded[leaksJSON](t, d.ctl("leaks", "-o", "json").out)
		var found []string
		for _, l := range j.Leaks {
			found = append(found, fmt.Sprint(l.Why, " ", l.Kind, " ", l.Node, " ", l.RedisKey))
		}
		slices.Sort(found)
		want := []string{"foreign foreign 2 lockkit:theirs", "no_expiry lock 1 lockkit:{0}r:forever", "no_expiry tombstone 0 lockkit:{0}x:attempt", "no_expiry waiters 0 lockkit:{0}w:forever"}
		if !slices.Equal(found, want) {
			t.Errorf("found %q, want %q", found, want)
		}

		for i := range 30 {
			d.exec(2, "SET", fmt.Sprint("lockkit:theirs:", i), "x")
		}
		few := decoded[leaksJSON](t, d.ctl("leaks", "-o", "json", "--limit", "2").out)
		if few.Found["foreign"] != 31 || len(few.Leaks) != 2+2 {
			t.Errorf("%+v", few)
		}
	})
}

// The expiry that leaks advises ends no lease and no record early. A key that lockctl cannot read gets no advice.
func TestAdviceOfLeaks(t *testing.T) {
	atDesk(t, 3, func(t *testing.T, d *desk) {
		l := d.service()
		if err := d.acquire(l, "yearly", core.Retention(366*24*time.Hour)).Complete(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		d.acquire(l, "held")
		synctest.Wait()

		for i := range d.nodes {
			d.exec(i, "PERSIST", "lockkit:{0}r:yearly")
			d.exec(i, "PERSIST", "lockkit:{0}r:held")
			d.exec(i, "SET", "lockkit:{0}r:newer", "\xffof a later version")
		}

		advice := map[string]int64{}
		for _, leak := range decoded[leaksJSON](t, d.ctl("leaks", "-o", "json").out).Leaks {
			advice[leak.RedisKey] = leak.ExpireMS
			if leak.ExpireMS > 0 {
				d.exec(leak.Node, "PEXPIRE", leak.RedisKey, leak.ExpireMS)
			}
		}

		if advice["lockkit:{0}r:newer"] != 0 || advice["lockkit:{0}r:held"] != minExpiry.Milliseconds() {
			t.Errorf("%v", advice)
		}

		for _, wait := range []time.Duration{11 * 24 * time.Hour, 354 * 24 * time.Hour} {
			for i := range d.nodes {
				d.nodes[i].StepClock(wait)
			}
			if text, _ := d.exec(0, "GET", "lockkit:{0}r:yearly").(string); text == "" {
				t.Errorf("after another %v, a key that is done for a year is gone: %v", wait, advice)
			}
		}
	})
}

// A key that SCAN returns twice is reported once.
func TestLeaksThatSCANReturnsTwice(t *testing.T) {
	atDesk(t, 1, func(t *testing.T, d *desk) {
		d.exec(0, "SET", "lockkit:theirs", "x")
		d.hook = twice{}
		if got := decoded[leaksJSON](t, d.ctl("leaks", "-o", "json").out); got.Found["foreign"] != 1 || len(got.Leaks) != 1 {
			t.Errorf("%+v", got)
		}
	})
}

// twice makes SCAN return each key twice, as Redis may while a table grows.
type twice struct{}

func (twice) DialHook(next redis.DialHook) redis.DialHook { return next }
func (twice) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
func (twice) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if scan, ok := cmd.(*redis.ScanCmd); ok && err == nil {
			keys, cursor := scan.Val()
			scan.SetVal(append(keys, keys...), cursor)
		}
		return err
	}
}

// A node that was not read may have leaks, and leaks says so.
func TestLeaksOfSilentNodes(t *testing.T) {
	atDesk(t, 3, func(t *testing.T, d *desk) {
		d.nodes[0].Down()
		if got := d.ctl("leaks"); got.code != exitProblem || !strings.HasPrefix(got.out, "No leaks in what was read.\n") {
			t.Errorf("%+v", got)
		}
		d.nodes[1].Down()
		d.nodes[2].Down()
		if got := d.ctl("leaks"); got.code != exitProblem || got.out != "" || !strings.Contains(got.err, "no node has answered") {
			t.Errorf("%+v", got)
		}
	})
}

// refusesAnotherToken checks that a call is refused with an error that names the holder.
func (d *desk) refusesAnotherToken(args ...string) {
	d.t.Helper()
	got := d.ctl(args...)
	if got.code != exitProblem || got.out != "" || !strings.Contains(got.err, "not released, because the token is another: order:42 is held with token ") ||
		!strings.Contains(got.err, " by web-1/7 (orders). Nothing has changed") {
		d.t.Errorf("%+v", got)
	}
}

func TestRelease(t *testing.T) {
	atDesk(t, 3, func(t *testing.T, d *desk) {
		lease := d.acquire(d.service(core.Note("web-1/7")), "order:42", core.Name("orders"))
		token := fmt.Sprint(lease.FencingToken())
		d.refusesAnotherToken("release", "order:42", "--token", "1")
		if lease.Context().Err() != nil {
			t.Error("the lease has ended")
		}
		got := d.ctl("release", "order:42", "--token", token)
		if got.code != exitOK || !strings.Contains(got.out, "order:42 is taken from its holder (web-1/7 (orders), token "+token+"), and free in ") ||
			!strings.Contains(got.err, "lease revoked") {
			t.Errorf("%+v", got)
		}
		if out := d.well("show", "order:42"); strings.HasPrefix(out, "order:42 is free.") {
			t.Error(out)
		}
		time.Sleep(10*time.Second + time.Millisecond)
		if out := d.well("show", "order:42"); !strings.HasPrefix(out, "order:42 is free.") {
			t.Error(out)
		}
		if err := context.Cause(lease.Context()); !errors.Is(err, core.ErrLost) || !strings.Contains(err.Error(), "revoked") {
			t.Errorf("the holder's context ended with %v", err)
		}
		if got := d.ctl("release", "order:42", "--token", token); got.code != exitProblem || !strings.Contains(got.err, "order:42 is free. Nothing has changed") {
			t.Errorf("%+v", got)
		}
	})
}

// A key can be taken from its holder while one node is down.
func TestReleaseWithANodeDown(t *testing.T) {
	atDesk(t, 3, func(t *testing.T, d *desk) {
		l, other := d.service(), d.service()
		token := fmt.Sprint(d.acquire(l, "k").FencingToken())
		d.nodes[2].Down()
		got := d.ctl("release", "k", "--token", token)
		if got.code != exitOK {
			t.Errorf("%+v", got)
		}
		wantParts(t, got.out, "k is taken from its holder (", "node 2 ("+d.nodes[2].Name()+") has not confirmed: ")
		next := d.acquire(other, "k")
		j := decoded[releaseJSON](t, d.ctl("release", "k", "-o", "json", "--token", fmt.Sprint(next.FencingToken())).out)
		if j.Key != "k" || j.FreeInMS <= 0 || j.Holder.Token != next.FencingToken() || len(j.Unconfirmed) != 1 {
			t.Errorf("%+v", j)
		}
	})
}

func TestReleaseWithoutAQuorum(t *testing.T) {
	atDesk(t, 3, func(t *testing.T, d *desk) {
		lease := d.acquire(d.service(), "k")
		d.nodes[1].Down()
		d.nodes[2].Down()
		got := d.ctl("release", "k", "--token", fmt.Sprint(lease.FencingToken()))
		if got.code != exitProblem || got.out != "" || !strings.Contains(got.err, "call again when more nodes answer") {
			t.Errorf("%+v", got)
		}
	})
}

func TestForgetRecord(t *testing.T) {
	atDesk(t, 3, func(t *testing.T, d *desk) {
		l := d.service()
		lease := d.acquire(l, "k")
		if err := lease.Complete(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // until all nodes have the record
		token := fmt.Sprint(lease.FencingToken())

		got := d.ctl("forget-record", "k", "--token", "1")
		if got.code != exitProblem || got.out != "" || !strings.Contains(got.err, "its completion record has token "+token) {
			t.Errorf("%+v", got)
		}
		j := decoded[forgetJSON](t, d.ctl("forget-record", "k", "--token", token, "-o", "json").out)
		if j.Key != "k" || j.Token != lease.FencingToken() {
			t.Errorf("%+v", j)
		}

		d.acquire(l, "k") // the key is no longer completed
		if got := d.ctl("forget-record", "k", "--token", token); got.code != exitProblem || !strings.Contains(got.err, "not forgotten") {
			t.Errorf("%+v", got)
		}

		d.nodes[0].Down()
		got = d.ctl("forget-record", "k", "--token", token)
		// Two of three nodes are a quorum, but all nodes must forget the record.
		if got.code != exitProblem || strings.Contains(got.err, "no quorum") {
			t.Errorf("%+v", got)
		}
		wantParts(t, got.err, "not forgotten by all nodes, which it takes: node 0 (", "call again when more nodes answer")
	})
}
