package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
)

// bench measures for as long as it is told, and leaves nothing behind.
func TestBench(t *testing.T) {
	atDesk(t, 3, func(t *testing.T, d *desk) {
		d.service() // provisions
		before := fmt.Sprint(d.nodes[0].Keys())
		for _, n := range d.nodes {
			n.Slow(2 * time.Millisecond) // or no time would pass
		}
		got := decoded[benchJSON](t, d.well("bench", "--for", "2s", "--parallel", "4", "-o", "json"))
		if got.Nodes != 3 || got.Parallel != 4 || got.Failed != 0 || got.PairsPerSecond < 4*150 || got.PairsPerSecond > 4*250 {
			t.Errorf("%+v", got)
		}
		for name, q := range map[string]quantilesJSON{"acquire": got.Acquire, "release": got.Release, "hand-off": got.HandOff} {
			if q.Count < 10 || q.P50 < 1000 || q.P99 < q.P50 || q.Most < q.P99 || q.Most > 100_000 {
				t.Errorf("%s: %+v", name, q)
			}
		}
		time.Sleep(time.Minute) // tombstones
		for i := range d.nodes {
			if keys := fmt.Sprint(d.nodes[i].Keys()); keys != before {
				t.Errorf("node %d has %s, had %s", i, keys, before)
			}
		}
		if out := d.well("bench", "--for", "200ms"); !strings.Contains(out, "pairs per second on 3 nodes, with 16 callers.") || !strings.Contains(out, "hand-off") {
			t.Error(out)
		}
	})
}

// Nothing stays of a bench that is interrupted, or cannot go on.
func TestBenchInterrupted(t *testing.T) {
	atDesk(t, 3, func(t *testing.T, d *desk) {
		d.service()
		before := fmt.Sprint(d.nodes[0].Keys())
		for _, n := range d.nodes {
			n.Slow(10 * time.Millisecond)
		}
		for _, after := range []time.Duration{500 * time.Millisecond, 1500 * time.Millisecond} {
			ctx, stop := context.WithTimeout(t.Context(), after)
			if got := d.start(ctx, new(bytes.Buffer), "bench", "--for", "2s", "--parallel", "2"); got.code != exitWrong || got.out != "" {
				t.Errorf("%+v", got)
			}
			stop()
		}
		time.Sleep(time.Minute)
		for i := range d.nodes {
			if keys := fmt.Sprint(d.nodes[i].Keys()); keys != before {
				t.Errorf("node %d has %s, had %s", i, keys, before)
			}
		}
		d.nodes[0].Down()
		d.nodes[1].Down()
		if got := d.ctl("bench", "--for", "1s"); got.code != exitWrong || !strings.Contains(got.err, "no quorum") {
			t.Errorf("%+v", got)
		}
	})
}
