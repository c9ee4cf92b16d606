package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core"
)

// Each turn of a key is a line, and renewals are none.
func TestWatch(t *testing.T) {
	atDesk(t, 3, func(t *testing.T, d *desk) {
		a, b := d.service(core.Note("a")), d.service(core.Note("b"))
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var out bytes.Buffer
		done := make(chan said, 1)
		go func() { done <- d.start(ctx, &out, "watch", "k") }()
		step := func() { time.Sleep(time.Second); synctest.Wait() }
		step()
		first := d.acquire(a, "k")
		step()
		d.waiting("k")
		time.Sleep(20 * time.Second) // with renewals
		synctest.Wait()
		for i := range d.nodes {
			d.exec(i, "DEL", "lockkit:{0}w:k")
		}
		d.release(first)
		second := d.acquire(b, "k")
		step()
		if err := second.Complete(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		step()
		d.nodes[0].Down()
		d.nodes[1].Down()
		step()
		d.nodes[0].Up()
		d.nodes[1].Up()
		time.Sleep(5 * time.Second)
		stop()
		got := <-done
		if got.code != exitWell || got.err != "" {
			t.Errorf("%+v", got)
		}
		last := strings.LastIndex(strings.TrimSpace(got.out), "\n") + 1
		if !strings.HasSuffix(got.out, "  completed, token 946684822000000\n") { // when nodes are asked again that were down
			t.Error(got.out)
		}
		wantText(t, got.out[:last], `
00:00:00.000  free
00:00:01.250  granted, token 946684801000000, a, left 9.8s
00:00:02.250  held, as before; waiting: 1
00:00:22.250  passed on, token 946684822000000, b, left 9.8s
00:00:23.250  completed, token 946684822000000
00:00:24.250  ownership unknown; no quorum of nodes has answered, and a holder may still be working`)
	})
}

// watch ends by itself where it is to, and prints an object for each line.
func TestWatchFor(t *testing.T) {
	atDesk(t, 1, func(t *testing.T, d *desk) {
		lease := d.acquire(d.service(), "k")
		time.AfterFunc(time.Second, func() { lease.Release(context.Background()) })
		since := time.Now()
		lines := strings.Split(strings.TrimSpace(d.well("watch", "k", "--for", "3s", "-o", "json")), "\n")
		if took := time.Since(since); took != 3*time.Second {
			t.Errorf("took %v", took)
		}
		if len(lines) != 2 {
			t.Fatalf("%q", lines)
		}
		if turn := decoded[turnJSON](t, lines[0]); turn.State != "held" || turn.Holder.Token == 0 || turn.At.IsZero() || turn.Change == "" {
			t.Errorf("%+v", turn)
		}
		if turn := decoded[turnJSON](t, lines[1]); turn.State != "free" || turn.Change != "free again" {
			t.Errorf("%+v", turn)
		}
	})
}

// Where nodes hang, the first look may take longer than --for: it takes the node timeout, a second.
func TestWatchThatSeesNothing(t *testing.T) {
	atDesk(t, 3, func(t *testing.T, d *desk) {
		for _, n := range d.nodes {
			n.Hang()
		}
		if got := d.ctl("watch", "k", "--for", "900ms"); got.code != exitWrong || got.out != "" || !strings.Contains(got.err, "nothing was read within 900ms") {
			t.Errorf("%+v", got)
		}
		if got := d.ctl("watch", "k", "--for", "10s"); got.code != exitWell || !strings.Contains(got.out, "no quorum of nodes has answered") {
			t.Errorf("%+v", got)
		}
	})
}
