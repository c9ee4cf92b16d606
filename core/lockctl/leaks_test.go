package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/testutil"
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
		out := d.well("leaks")
		if !strings.HasPrefix(out, "No leaks.\n") || strings.Contains(out, "{0}g") {
			t.Error(out)
		}
		got := decoded[leaksJSON](t, d.well("leaks", "-o", "json"))
		for sort, keys := range map[string]int{"held": 3, "waiters": 3, "counters": 3, "kept": 3, "records": 3, "tombstones": 3} {
			if got.Stored[sort].Keys != keys || got.Stored[sort].Bytes <= 0 {
				t.Errorf("%s: %+v", sort, got.Stored[sort])
			}
		}
		if got.MaxTTLMS != 10_000 || len(got.Leaks) != 0 || len(got.Found) != 0 || len(got.Stored) != 6 {
			t.Errorf("%+v", got)
		}
	})
}

// What was planted is found, and the guard record is not.
func TestLeaks(t *testing.T) {
	atDesk(t, 3, func(t *testing.T, d *desk) {
		l := d.service()
		d.acquire(l, "forever")
		d.acquire(l, "long")
		d.acquire(l, "old")
		d.exec(1, "PERSIST", "lockkit:{0}r:forever")
		d.exec(0, "SET", "lockkit:{0}x:attempt", "1")
		d.exec(0, "ZADD", "lockkit:{0}w:forever", 1, "P lockkit:{0}c:x y")
		d.exec(2, "SET", "lockkit:theirs", "x", "PX", 60000)
		d.exec(2, "SET", "elsewhere", "x")
		d.exec(0, "SET", "lockkit:{0}r:old", "\x01old")
		d.change(2, "long", func(r *testutil.Resource) { r.Expiry = time.Now().Add(time.Minute).UnixMilli() })
		got := d.ctl("leaks")
		if got.code != exitWrong || got.err != "" || strings.Contains(got.out, "{0}g") {
			t.Errorf("%+v", got)
		}
		lines := strings.Split(steady(got.out), "\n")
		slices.Sort(lines[1:7])
		for i, want := range []string{"WHAT  NODE  ADDRESS  KEY IN REDIS  BYTES  LEFT", "lease beyond the max TTL  2  host", "no expiry  0  host", "no expiry  0  host",
			"no expiry  1  host", "not lockkit's  2  host", "unreadable  0  host"} {
			if !strings.HasPrefix(lines[i], want) {
				t.Errorf("line %d: %q, want %s", i, lines[i], want)
			}
		}
		wantParts(t, got.out, "3 keys, no expiry: ", "PEXPIRE KEY", "1 key, lease beyond the max TTL: ", "1 key, not lockkit's: ", "1 key, unreadable: ")
		j := decoded[leaksJSON](t, d.ctl("leaks", "-o", "json").out)
		var found []string
		for _, l := range j.Leaks {
			found = append(found, fmt.Sprint(l.Why, " ", l.Node, " ", l.RedisKey))
		}
		slices.Sort(found)
		want := []string{"foreign 2 lockkit:theirs", "long_lease 2 lockkit:{0}r:long", "no_expiry 0 lockkit:{0}w:forever", "no_expiry 0 lockkit:{0}x:attempt",
			"no_expiry 1 lockkit:{0}r:forever", "unreadable 0 lockkit:{0}r:old"}
		if !slices.Equal(found, want) {
			t.Errorf("found %q, want %q", found, want)
		}
		if got := d.ctl("leaks", "--max-ttl", "2m"); strings.Contains(got.out, "beyond") {
			t.Errorf("with a longer max TTL: %s", got.out)
		}
		for i := range 30 {
			d.exec(2, "SET", fmt.Sprint("lockkit:theirs:", i), "x")
		}
		few := decoded[leaksJSON](t, d.ctl("leaks", "-o", "json", "--limit", "2").out)
		if few.Found["foreign"].Keys != 31 || len(few.Leaks) != 2+2+1+1 {
			t.Errorf("%+v", few)
		}
	})
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

// Where no node knows the max TTL, leases are not judged, and that is said.
func TestLeaksWithoutAGuard(t *testing.T) {
	atDesk(t, 1, func(t *testing.T, d *desk) {
		d.acquire(d.service(core.TTL(time.Minute)), "k")
		if out := d.well("leaks"); !strings.Contains(out, "give --max-ttl") {
			t.Error(out)
		}
		if got := d.ctl("leaks", "--max-ttl", "10s"); got.code != exitWrong || !strings.Contains(got.out, "lease beyond the max TTL") {
			t.Errorf("%+v", got)
		}
	})
}
