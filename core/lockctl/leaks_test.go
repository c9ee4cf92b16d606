package main

import (
	"context"
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

// What was planted is found, and the guard record is not.
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
		if got.code != exitWrong || got.err != "" || strings.Contains(got.out, "{0}g") {
			t.Errorf("%+v", got)
		}
		wantParts(t, steady(got.out), "WHAT  NODE  ADDRESS  KEY IN REDIS", "\nno expiry  1  host", "\nnot lockkit's  2  host", "3 keys, no expiry: ", "PEXPIRE KEY", "1 key, not lockkit's: ")
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

// A key that SCAN returns twice is one.
func TestLeaksThatSCANReturnsTwice(t *testing.T) {
	atDesk(t, 1, func(t *testing.T, d *desk) {
		d.exec(0, "SET", "lockkit:theirs", "x")
		d.hook = twice{}
		if got := decoded[leaksJSON](t, d.ctl("leaks", "-o", "json").out); got.Found["foreign"] != 1 || len(got.Leaks) != 1 {
			t.Errorf("%+v", got)
		}
	})
}

// twice has SCAN return each key twice, as Redis may while a table grows.
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

// What was not read may have leaks.
func TestLeaksOfSilentNodes(t *testing.T) {
	atDesk(t, 3, func(t *testing.T, d *desk) {
		d.nodes[0].Down()
		if got := d.ctl("leaks"); got.code != exitWrong || !strings.HasPrefix(got.out, "No leaks in what was read.\n") {
			t.Errorf("%+v", got)
		}
		d.nodes[1].Down()
		d.nodes[2].Down()
		if got := d.ctl("leaks"); got.code != exitWrong || got.out != "" || !strings.Contains(got.err, "no node has answered") {
			t.Errorf("%+v", got)
		}
	})
}
