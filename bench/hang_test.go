package main

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A sticky is a locker whose n-th lock waits until it is cancelled.
type sticky struct{ n, asked int }

func (l *sticky) lock(ctx context.Context, _ string) (unlock, error) {
	if l.asked++; l.asked == l.n {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	time.Sleep(time.Millisecond)
	return func(context.Context) error { return nil }, nil
}

func (l *sticky) tryLock(ctx context.Context, key string) (unlock, error) { return l.lock(ctx, key) }

func (l *sticky) close() {}

// stick measures a peer that hangs in its second measured round.
func stick(t *testing.T, name string) (result, error) {
	e := &entrant{peer: peer{name: name}, locker: &sticky{n: 130}, keys: keysFor(0, 1)}
	err := interleave(t.Context(), 3, []*entrant{e}, &nodes{servers: nil}, load{goroutines: 1, measure: 50 * time.Millisecond})
	return results([]*entrant{e})[0], err
}

func TestPeerThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := stick(t, "somebody else")
		if err != nil {
			t.Fatal(err)
		}
		if len(r.rates) != 3 || math.IsNaN(r.rates[0]) || !math.IsNaN(r.rates[1]) || math.IsNaN(r.rates[2]) {
			t.Errorf("rates of the rounds: %v, want none of the second", r.rates)
		}
		if math.IsNaN(r.rate) || math.IsNaN(r.low) || math.IsNaN(r.high) || r.failures != 0 {
			t.Errorf("rate %v, %v to %v, %d failures", r.rate, r.low, r.high, r.failures)
		}
		if got := r.cell(); got != "somebody else (1 round hung)" {
			t.Errorf("in tables: %q", got)
		}
		var s section
		s.note(r, "1 node")
		if len(s.notes) != 1 || !strings.Contains(s.notes[0], "1 node, somebody else: hung after ") || strings.Contains(s.notes[0], "heed") {
			t.Errorf("notes: %q", s.notes)
		}
	})
}

func TestLockkitMayNotHang(t *testing.T) {
	for _, name := range []string{lockkitOpen, lockkitNew} {
		synctest.Test(t, func(t *testing.T) {
			if _, err := stick(t, name); !errors.Is(err, errHung) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}

// If all rounds of a peer hang, it has no figures.
func TestPeerThatHangsAlways(t *testing.T) {
	rs := results([]*entrant{
		{peer: peer{name: baseline}, rounds: rounds(100, 50)},
		{peer: peer{name: "stuck"}, rounds: []slice{{}, {}}, hung: []error{errHung, errHung}},
	})
	if got := rate(rs[1].rate) + times(rs[1].ratio) + spread(rs[1].low, rs[1].high) + times(ratio(rs[0], rs[1])); strings.ContainsAny(got, "123456789") {
		t.Errorf("figures of nothing: %s", got)
	}
}

func TestWaitingPeerThatHangs(t *testing.T) {
	others := []peer{{name: "stuck"}, {name: "well"}}
	var s section
	var measured []string
	hang := func(p peer, _ *nodes) error {
		if measured = append(measured, p.name); p.name == "well" {
			return nil
		}
		return errors.Join(errHung, errors.New("signal: killed"))
	}
	if err := eachWaiting(&s, 1, others, hang); err != nil || len(measured) != 2 {
		t.Errorf("%q, then %v", measured, err)
	}
	if len(s.notes) != 1 || !strings.Contains(s.notes[0], "1 node, stuck: hung") {
		t.Errorf("notes: %q", s.notes)
	}
	if err := eachWaiting(&s, 1, wakingPeers[:1], hang); !errors.Is(err, errHung) {
		t.Errorf("lockkit: %v", err)
	}
}

// A waiter that is never woken is cancelled, and the error says how many hand-offs came before it.
func TestHandOverThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := peer{name: "stuck", open: func(context.Context, []string, time.Duration) (locker, error) { return &sticky{n: 1}, nil }}
		hs, err := handOver(t.Context(), config{handoffKeys: 1, handoffsEach: 1}, p, &nodes{}, nil)
		if !mayHang(p, err) || !strings.Contains(err.Error(), "hung after 0 hand-offs") || len(hs.took) != len(handoffKinds) {
			t.Errorf("%d kinds, %d hand-offs, %v", len(hs.took), hs.total(), err)
		}
	})
}
