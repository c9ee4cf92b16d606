// Package whathappens measures the figures of docs/what-happens.md, with the default options, in virtual time.
package whathappens

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/testutil"
	"github.com/lockkit/lockkit/testutil/locktest"
)

// A span is a range of durations, ends included. A span that ends before it begins means never.
type span struct{ from, to time.Duration }

var (
	atOnce = span{0, 100 * time.Millisecond}
	never  = span{1, 0}
)

// A fault strikes three nodes, or the process that holds a key. The spans are measured from the strike.
type fault struct {
	strike  func(holder *locktest.Locker)
	lost    span  // until the holder's context ends
	waiter  span  // until a waiter has the key
	gives   span  // until a waiter gives up with core.ErrUnavailable
	others  span  // until another, free key is granted
	record  error // the error of Once for a key that was completed before; errAny if it is not checked
	figures string
}

// errAny stands for a result of which the page says nothing.
var errAny = errors.New("any")

var (
	// The last renewal was up to 3.7 s ago. The context ends 7.7 s after it, and the nodes forget the lease after 10 s.
	expires = span{4 * time.Second, 7800 * time.Millisecond}
	taken   = span{6300 * time.Millisecond, 10100 * time.Millisecond}
)

var faults = map[string]fault{
	"killed":         {strike: func(l *locktest.Locker) { l.Link.Kill() }, waiter: taken, gives: never, others: atOnce, record: core.ErrDone, figures: "6 to 10 s"},
	"cut-off":        {strike: func(l *locktest.Locker) { l.Link.Cut() }, lost: expires, waiter: taken, gives: never, others: atOnce, record: core.ErrDone, figures: "6 to 10 s"},
	"one-empty":      {strike: nodes(1, (*testutil.Node).RestartEmpty), lost: never, waiter: never, gives: never, others: atOnce, record: core.ErrDone, figures: "at once"},
	"one-down":       {strike: nodes(1, (*testutil.Node).Down), lost: never, waiter: never, gives: never, others: atOnce, record: core.ErrDone, figures: "at once"},
	"two-empty":      {strike: nodes(2, (*testutil.Node).RestartEmpty), lost: never, waiter: never, gives: never, others: span{9 * time.Second, 11 * time.Second}, record: errAny, figures: "10 s"},
	"all-empty":      {strike: nodes(3, (*testutil.Node).RestartEmpty), lost: never, waiter: never, gives: never, others: span{9 * time.Second, 11 * time.Second}, record: nil, figures: "10 s"},
	"all-persistent": {strike: nodes(3, (*testutil.Node).Restart), lost: never, waiter: never, gives: never, others: span{9 * time.Second, 11 * time.Second}, record: core.ErrDone, figures: "10 s"},
	"away-3s":        {strike: away(3 * time.Second), lost: never, waiter: never, gives: never, others: span{3 * time.Second, 4 * time.Second}, record: core.ErrDone, figures: "4 s"},
	"away-30s":       {strike: away(30 * time.Second), lost: expires, waiter: never, gives: span{10 * time.Second, 12 * time.Second}, others: span{30 * time.Second, 31 * time.Second}, record: core.ErrDone, figures: "4 to 8 s"},
	"one-clock":      {strike: nodes(1, ahead), lost: never, waiter: never, gives: never, others: atOnce, record: core.ErrDone, figures: "500 ms"},
	"two-clocks":     {strike: nodes(2, ahead), lost: expires, waiter: never, gives: span{10 * time.Second, 12 * time.Second}, others: never, record: errAny, figures: "4 to 8 s"},
}

// nodes returns a fault that strikes n nodes.
func nodes(n int, strike func(*testutil.Node)) func(*locktest.Locker) {
	return func(l *locktest.Locker) {
		for _, node := range l.Nodes[:min(n, len(l.Nodes))] {
			strike(node)
		}
	}
}

// away returns a fault that makes all nodes unreachable for a time.
func away(d time.Duration) func(*locktest.Locker) {
	return nodes(3, func(n *testutil.Node) {
		n.Down()
		time.AfterFunc(d, n.Up)
	})
}

func ahead(n *testutil.Node) { n.StepClock(time.Hour) }

// Each fault has the effects that the page describes, within the times that the page gives.
func TestFaults(t *testing.T) {
	page := open(t)
	for name, f := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			page.says(t, "`TestFaults/"+name+"`", f.figures)
			synctest.Test(t, f.measure)
		})
	}
}

func (f fault) measure(t *testing.T) {
	holder := locktest.New(t)
	other := holder.Replica()
	lease, err := holder.Acquire(context.WithoutCancel(t.Context()), "account")
	if err != nil {
		t.Fatal(err)
	}
	before, err := holder.Acquire(lease.Context(), "free")
	if err == nil {
		err = errors.Join(before.Release(t.Context()), holder.Once(t.Context(), "done", func(context.Context) error { return nil }))
	}
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(25 * time.Second) // the lease has been renewed
	struck := time.Now()
	f.strike(holder)

	const patience = 50 * time.Second
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	defer cancel()
	waiter, granted, ended := make(chan error, 1), make(chan error, 1), make(chan error, 1)
	var lost, takes time.Time
	measure := func(what string, want span, result error, failed bool) {
		took := time.Since(struck)
		if t.Logf("%s: %v, %v", what, took, result); failed {
			took = patience
		}
		if got := took < patience; got != (want.from <= want.to) || got && (took < want.from || took > want.to) {
			t.Errorf("%s after %v, want %v", what, took, want)
		}
	}
	go func() {
		next, err := other.Acquire(ctx, "account")
		takes = time.Now()
		measure("the waiter has the key", f.waiter, err, err != nil)
		measure("the waiter gives up", f.gives, err, !errors.Is(err, core.ErrUnavailable) || ctx.Err() != nil)
		if err == nil {
			err = next.Release(ctx)
		}
		waiter <- err
	}()
	go func() {
		free, err := other.TryAcquire(ctx, "free")
		for err != nil && ctx.Err() == nil {
			time.Sleep(100 * time.Millisecond)
			free, err = other.TryAcquire(ctx, "free")
		}
		measure("another key is granted", f.others, err, err != nil)
		if err == nil {
			if free.FencingToken() <= before.FencingToken() {
				t.Errorf("token %d after %d", free.FencingToken(), before.FencingToken())
			}
			err = free.Release(ctx)
			if got := other.Once(ctx, "done", func(context.Context) error { return nil }); !errors.Is(got, f.record) && f.record != errAny {
				t.Errorf("Once: %v, want %v", got, f.record)
			}
		}
		granted <- err
	}()
	go func() {
		select {
		case <-lease.Context().Done():
		case <-ctx.Done():
		}
		lost = time.Now()
		ended <- context.Cause(lease.Context())
		if f.lost != (span{}) { // a process that was killed sees nothing
			measure("the holder's context ends", f.lost, lease.Context().Err(), lease.Context().Err() == nil)
		}
	}()
	<-waiter
	<-granted
	if err := <-ended; err != nil && !errors.Is(err, core.ErrLost) {
		t.Errorf("the holder's context ended with %v", err)
	}
	if f.waiter == taken && f.lost == expires && takes.Sub(lost) < 2*time.Second {
		t.Errorf("the waiter has the key %v after the holder's context ended", takes.Sub(lost))
	}
	<-ctx.Done()
	_ = lease.Release(context.WithoutCancel(ctx)) // the result does not matter
}
