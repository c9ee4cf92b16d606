package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
)

// refusesAnotherToken checks that a call is refused, and says who holds the key.
func (d *desk) refusesAnotherToken(args ...string) {
	d.t.Helper()
	got := d.ctl(args...)
	if got.code != exitWrong || got.out != "" || !strings.Contains(got.err, "not released, because the token is another: order:42 is held with token ") ||
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
		if got.code != exitWell || !strings.Contains(got.out, "order:42 is taken from its holder (web-1/7 (orders), token "+token+"), and free in ") ||
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
		if got := d.ctl("release", "order:42", "--token", token); got.code != exitWrong || !strings.Contains(got.err, "order:42 is free. Nothing has changed") {
			t.Errorf("%+v", got)
		}
	})
}

// A node that is away does not keep a key with its holder.
func TestReleaseWithANodeDown(t *testing.T) {
	atDesk(t, 3, func(t *testing.T, d *desk) {
		l, other := d.service(), d.service()
		token := fmt.Sprint(d.acquire(l, "k").FencingToken())
		d.nodes[2].Down()
		got := d.ctl("release", "k", "--token", token)
		if got.code != exitWell {
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
		if got.code != exitWrong || got.out != "" || !strings.Contains(got.err, "call again when more nodes answer") {
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
		token := fmt.Sprint(lease.FencingToken())
		got := d.ctl("forget-record", "k", "--token", "1")
		if got.code != exitWrong || got.out != "" || !strings.Contains(got.err, "its completion record has token "+token) {
			t.Errorf("%+v", got)
		}
		j := decoded[forgetJSON](t, d.ctl("forget-record", "k", "--token", token, "-o", "json").out)
		if j.Key != "k" || j.Token != lease.FencingToken() {
			t.Errorf("%+v", j)
		}
		d.acquire(l, "k") // it is not done
		if got := d.ctl("forget-record", "k", "--token", token); got.code != exitWrong || !strings.Contains(got.err, "not forgotten") {
			t.Errorf("%+v", got)
		}
		d.nodes[0].Down()
		got = d.ctl("forget-record", "k", "--token", token)
		if got.code != exitWrong || strings.Contains(got.err, "no quorum") { // two of three are one, and it takes all
			t.Errorf("%+v", got)
		}
		wantParts(t, got.err, "not forgotten by all nodes, which it takes: node 0 (", "call again when more nodes answer")
	})
}
