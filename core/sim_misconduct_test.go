package core

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"os"
	"testing"
	"time"
)

// This file makes the user's code misbehave in the simulation: observers, loggers, and hooks of clients.

// A misconduct is a way in which observer and logger misbehave now and then.
type misconduct int

const (
	good misconduct = iota
	panicking
	slow
	blocking // for longer than a lease of seconds lasts
	misconducts
)

// delays reports whether a call may return so late that its lease was lost meanwhile.
func (m misconduct) delays() bool { return m == slow || m == blocking }

// punctual is the key of a context value that keeps the observer from delaying a call.
type punctual struct{}

// observer counts losses and verdicts, which only an observer sees, and misbehaves as the seed says.
func (s *simulation) observer() Observer {
	return Observer{
		Start: func(ctx context.Context, op Op) (context.Context, func(Outcome)) {
			if ctx.Value(punctual{}) != nil {
				return ctx, func(out Outcome) { s.ended(op, out) }
			}
			s.misbehave("observer", 20)
			return ctx, func(out Outcome) {
				s.ended(op, out)
				s.misbehave("observer", 20)
			}
		},
		Node: func(context.Context, OpKind, NodeReply) { s.misbehave("observer", 20) },
	}
}

func (s *simulation) ended(op Op, out Outcome) {
	if op.Kind == OpHold && errors.Is(out.Err, ErrLost) {
		s.Count("lost")
	}
	for _, n := range out.Nodes {
		s.Count(n.Verdict.String())
	}
}

// logger writes nothing. It misbehaves at every second line or so, because lines are few.
func (s *simulation) logger() *slog.Logger {
	return slog.New(faultyHandler{func(context.Context) { s.misbehave("logger", 2) }})
}

// misbehave panics, sleeps or blocks as the seed says, in one of oneIn calls.
func (s *simulation) misbehave(who string, oneIn int) {
	s.mu.Lock()
	now, part := s.whims.IntN(oneIn) == 0 && !s.calm, s.whims.ExpFloat64()
	long := s.whims.IntN(5) == 0
	s.mu.Unlock()
	if !now {
		return
	}

	switch {
	case s.callbacks == panicking:
		s.Count(who + " panics")
		panic(who)
	case s.callbacks == slow:
		s.Count(who + " is slow")
		time.Sleep(time.Duration(part * float64(s.ttl()/20)))
	case s.callbacks == blocking && long:
		s.Count(who + " blocks")
		time.Sleep(time.Duration((1 + part) * float64(s.ttl())))
	}
}

// silenceStderr discards the writes to os.Stderr, because each Locker reports there once that its logger panics. The Go
// runtime still prints fatal errors.
func silenceStderr(t *testing.T) {
	stderr := os.Stderr
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	os.Stderr = null
	t.Cleanup(func() {
		os.Stderr = stderr
		null.Close()
	})
}

// hookPanics draws whether a hook of the client panics.
func (s *simulation) hookPanics(r *rand.Rand) bool {
	panics := r.Float64() < s.panics
	if panics {
		s.Count("hook panics")
	}
	return panics
}
