package leader_test

import (
	"testing"
	"time"

	"github.com/lockkit/lockkit/cronlock/leader"
)

// known demands that all of them say that l leads.
func (w *world) known(l *candidate, all ...*candidate) {
	w.Helper()
	term := l.mustTerm(w.T)
	for _, c := range all {
		h, err := c.Leader(w.Context())
		if err != nil || h.Candidate != l.name || h.Term != term.FencingToken || h.Since.Sub(term.Since).Abs() > time.Second {
			w.Errorf("%s says that %+v leads, %v; want %s in term %d since %v", c.name, h, err, l.name, term.FencingToken, term.Since)
		}
	}
}

// A leader that resigns is shown to others, and not by itself, until its work has ended; one that dies until its lease has.
func TestLeaderThatHasGone(t *testing.T) {
	bubble(t, 3, func(w *world) {
		l, f := w.pair()
		_, leave := w.enter(l)
		l.Resign()
		time.Sleep(time.Minute)
		if h, err := f.Leader(w.Context()); err != nil || h.Candidate != l.name {
			w.Errorf("while it finishes its work: %+v, %v", h, err)
		}
		h, err := l.Leader(w.Context())
		if isErr(w.T, "by itself", err, leader.ErrNoLeader); h != (leader.Holder{}) {
			w.Errorf("%+v", h)
		}
		leave()
		await(w.T, taking, "the other one leads", f.leads)
		newcomer := w.candidate("new")
		w.known(f, l, newcomer)
		isErr(w.T, "Close", newcomer.Close(w.Context()), nil)

		f.locks.Link.Kill()
		died := time.Now()
		for !l.leads() {
			h, err := l.Leader(w.Context())
			if err != nil {
				isErr(w.T, "after the end of its lease", err, leader.ErrNoLeader)
			}
			if since := time.Since(died); since > ttl+100*time.Millisecond {
				w.Fatalf("%v after its death: %+v, %v", since, h, err)
			}
			time.Sleep(10 * time.Millisecond)
		}
		w.known(l, l)
	})
}
