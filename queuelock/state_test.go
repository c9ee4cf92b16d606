package queuelock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/testutil"
)

// follows returns the state that follows a trigger in a state by the rules.
func follows(h trigger, s state) state {
	asks := s <= persisting
	runs := s == running || s == overstaying
	switch {
	case asks && h == onGranted:
		return running
	case asks && h == onCompleted: // rule 1: it is remembered
		return duplicate
	case asks && h == onKeyInvalid:
		return keyInvalid
	case s == persisting && h == onContextEnd: // rule 3: asynq would archive it
		return parked
	case s == parked && (h == onContextEnd || h == onClosed): // asynq has taken the task back
		return cancelled
	case asks && h == onContextEnd: // rule 3: it is given back, unless asynq has taken it back
		return cancelled
	case (s == persisting || s == parked) && h == onTimeUp: // rule 3: only a last attempt is archived
		return archived
	case h == onTimeUp:
		return impossible
	// Rule 3: it goes on waiting.
	case s == persisting && (h == onHeld || h == onUnreachable || h == onClosed || h == onLeaseLost):
		return persisting
	case s == trying && h == onHeld: // rule 3: it waits once
		return waiting
	case s == trying && h == onUnreachable:
		return stranded
	case asks && h == onHeld || s == trying && h == onNoPlace: // rule 3: it is given back
		return contended
	case asks && (h == onUnreachable || h == onClosed || h == onLeaseLost):
		return unavailable
	case runs && h == onContextEnd: // rule 2: its leases are held until it returns
		return overstaying
	case s == recording && h == onContextEnd, (runs || s == recording) && h == onLeaseLost:
		return s
	case runs && h == onSuccess: // rule 5: the success is recorded first
		return recording
	case runs && h == onFailure: // rule 5: asynq handles all other errors
		return finished
	case runs && h == onCooldown:
		return coolingDown
	case runs && (h == onLastCooldown || h == onLastStale):
		return archived
	case runs && h == onStale: // rule 5: it is given back
		return stale
	case s == recording && h == onRecorded:
		return finished
	case s == recording && h == onRejected:
		return rejected
	}
	return impossible
}

// The table agrees with the rules for every state and trigger.
func TestLife(t *testing.T) {
	for h := range triggerCount {
		for s := range duplicate {
			if got, want := transitions[h][s], follows(h, s); got != want {
				t.Errorf("state %d, happening %d: %d, want %d", s, h, got, want)
			}
		}
	}
}

// A scene is a delivery of a task of order 1 that is about to acquire its leases. Its methods set up obstacles.
type scene struct {
	*rig
	d      *delivery
	ctx    context.Context
	cancel func()
}

// hold makes another process hold a key.
func (s *scene) hold(key string) *core.Lease {
	return must(s.locker().Acquire(context.Background(), key))
}

// own makes another delivery of the task hold its identity.
func (s *scene) own() *core.Lease { return s.hold(s.d.keys[0]) }

func (s *scene) after(d time.Duration, f func()) { time.AfterFunc(d, f) }

func (s *scene) complete(key string) { s.completedByAnother(key) }

func (s *scene) completeLater(lease *core.Lease) {
	s.after(time.Second, func() { lease.Complete(context.Background(), nil) })
}

func (s *scene) close() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	s.d.locker.Close(ctx)
}

// The cells of the table before a handler runs: each case sets up an obstacle for a delivery, and checks its final
// state. Some cases block only the order's key, so that the delivery already holds the lease of its identity.
func TestLifeOfDeliveries(t *testing.T) {
	entity := core.Key("order", "1")
	for _, c := range []struct {
		state   state // in which the trigger occurs
		what    trigger
		arrange func(s *scene)
		took    time.Duration
	}{
		{trying, onGranted, func(*scene) {}, 0},
		{trying, onHeld, func(s *scene) { s.take(1) }, 20 * time.Second}, // also waiting, onHeld
		{trying, onNoPlace, func(s *scene) { s.take(1); s.d.server = s.m().newServer(1) }, 0},
		// Also stranded, onUnreachable. core gives up after a TTL.
		{trying, onUnreachable, func(s *scene) { s.hang() }, 3 * time.Second},
		{trying, onClosed, func(s *scene) { s.close() }, 0},
		{trying, onCompleted, func(s *scene) { s.complete(s.d.keys[0]) }, 0},
		{trying, onKeyInvalid, func(s *scene) { s.complete(entity) }, 0},
		{trying, onContextEnd, func(s *scene) { s.cancel() }, 0},
		{waiting, onGranted, func(s *scene) { s.after(time.Second, s.take(1)) }, time.Second},
		{waiting, onUnreachable, func(s *scene) { s.take(1); s.after(time.Second, func() { s.hang() }) }, 0},
		{waiting, onClosed, func(s *scene) { s.own(); s.after(time.Second, s.close) }, time.Second},
		{waiting, onLeaseLost, func(s *scene) {
			free := s.take(1)
			s.after(time.Second, func() { s.steal(s.d.keys[0]); s.after(5*time.Second, free) })
		}, 0},
		{waiting, onCompleted, func(s *scene) { s.completeLater(s.own()) }, time.Second},
		{waiting, onKeyInvalid, func(s *scene) { s.completeLater(s.hold(entity)) }, time.Second},
		{waiting, onContextEnd, func(s *scene) { s.take(1); s.after(time.Second, s.cancel) }, time.Second},
		{stranded, onGranted, func(s *scene) { s.after(2*time.Second, s.hang()) }, 0},
		{stranded, onHeld, func(s *scene) { s.take(1); s.after(2*time.Second, s.hide()) }, 5 * time.Second},
		{stranded, onClosed, func(s *scene) { s.hang(); s.after(time.Second, s.close) }, time.Second},
		{stranded, onLeaseLost, func(s *scene) {
			back := s.hide()
			s.after(500*time.Millisecond, func() { s.steal(s.d.keys[0]); s.after(3*time.Second, back) })
		}, 0},
		{stranded, onCompleted, func(s *scene) { s.complete(s.d.keys[0]); s.after(2*time.Second, s.hang()) }, 0},
		{stranded, onKeyInvalid, func(s *scene) { s.complete(entity); s.after(2*time.Second, s.hide()) }, 0},
		{stranded, onContextEnd, func(s *scene) { s.hang(); s.after(time.Second, s.cancel) }, time.Second},
		{persisting, onGranted, func(*scene) {}, 0},
		// This is longer than half of its time.
		{persisting, onHeld, func(s *scene) { s.after(30*time.Second, s.take(1)) }, 30 * time.Second},
		{persisting, onUnreachable, func(s *scene) { s.after(30*time.Second, s.hang()) }, 0},
		{persisting, onClosed, func(s *scene) { s.close() }, 39 * time.Second},
		{persisting, onTimeUp, func(s *scene) { s.take(1) }, 39 * time.Second},
		{persisting, onLeaseLost, func(s *scene) {
			free := s.take(1)
			s.after(time.Second, func() { s.after(5*time.Second, s.steal(s.d.keys[0])); s.after(10*time.Second, free) })
		}, 0},
		{persisting, onCompleted, func(s *scene) { s.completeLater(s.own()) }, time.Second},
		{persisting, onKeyInvalid, func(s *scene) { s.complete(entity) }, 0},
		{persisting, onContextEnd, func(s *scene) { s.take(1); s.after(time.Second, s.cancel) }, time.Second},
	} {
		bubbleOf(t, fmt.Sprintf("state %d, happening %d", c.state, c.what), func(t *testing.T, r *rig) {
			s := r.scene(c.state == persisting)
			defer s.cancel()
			c.arrange(s)

			start := time.Now()
			held, err := s.d.acquire(s.ctx)
			want := transitions[c.what][c.state]

			// If the delivery goes on from that state, the final state is expected.
			switch {
			case c.what == onClosed && want == persisting:
				want = archived
			case want == waiting:
				want = contended
			case want == stranded:
				want = unavailable
			case want == persisting:
				want = running
			}

			if took := time.Since(start); s.d.state != want || (err == nil) != (want == running) || c.took > 0 && !between(took, c.took-100*time.Millisecond, c.took+500*time.Millisecond) {
				t.Errorf("state %d, want %d, after %v: %v", s.d.state, want, took, err)
			}
			if n := len(s.d.server.places); n > 0 {
				t.Errorf("%d waiting places are taken", n)
			}
			held.release(t.Context())
		})
	}
}

func (r *rig) m() *Middleware { return r.middleware(r.locker(), field("order")) }

// scene returns the scene of a task with a timeout of 40s.
func (r *rig) scene(atLast bool) *scene {
	m := r.m()
	ctx, cancel := context.WithTimeout(context.Background(), 40*time.Second)
	at, _ := ctx.Deadline()
	return &scene{rig: r, ctx: ctx, cancel: cancel, d: &delivery{
		Middleware: m, task: order(1), startedAt: time.Now(), keys: []string{core.Key("queue", "task", theID), core.Key("order", "1")}, recordsCompletion: true, lastAttempt: atLast,
		waitDeadline: at.Add(-20 * time.Second), giveUpAt: at.Add(-time.Second), origin: origin{server: m.newServer(8)},
	}}
}

// The cells of the table from the start of a handler on.
func TestLifeOfHandlers(t *testing.T) {
	failure := errors.New("failed")
	for name, c := range map[string]struct {
		returns error
		atLast  bool
		lose    func(s *scene)
		want    state
	}{
		"nil":                   {want: finished},
		"RevokeTask":            {returns: asynq.RevokeTask, want: finished},
		"an error":              {returns: failure, want: finished},
		"Cooldown":              {returns: Cooldown(time.Minute), want: coolingDown},
		"Cooldown at last":      {returns: Cooldown(time.Minute), atLast: true, want: archived},
		"nil, lost to somebody": {lose: func(s *scene) { s.steal(s.d.keys[0]) }, want: rejected},
		"nil, key lost":         {lose: func(s *scene) { s.steal(s.d.keys[1]) }, want: finished},
		"an error, lost":        {returns: failure, lose: func(s *scene) { s.steal(s.d.keys[0]) }, want: finished},
		"nil, nodes away":       {lose: func(s *scene) { s.hang() }, want: finished},
	} {
		for _, overstays := range []bool{false, true} {
			bubbleOf(t, fmt.Sprintf("%s, overstays=%v", name, overstays), func(t *testing.T, r *rig) {
				s := r.scene(c.atLast)
				defer s.cancel()
				held, in := must(s.d.acquire(s.ctx)), running
				got := s.d.runHandler(s.ctx, held, asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
					if overstays {
						s.cancel()
						in = overstaying
					}
					if c.lose != nil {
						c.lose(s)
						time.Sleep(5 * time.Second)
					}
					isLost := held.lostError() != nil
					if isLost && ctx.Err() == nil {
						t.Error("a lease is lost, and the handler's context goes on")
					}
					return c.returns
				}))

				if s.d.state != in {
					t.Errorf("state %d after the handler, want %d", s.d.state, in)
				}

				told := s.d.finish(s.ctx, held, got)
				if s.d.state != c.want || (told == nil) != (c.returns == nil && c.want == finished) || c.returns != nil && !errors.Is(told, c.returns) {
					t.Errorf("state %d, want %d; asynq is told %v", s.d.state, c.want, told)
				}
			})
		}
	}
}

// steal makes another process hold a key that is held, until back is called. It deletes the key on the nodes, as an
// operator might.
func (r *rig) steal(key string) (back func()) {
	for _, n := range r.nodes {
		must(n.Exec("DEL", "lockkit:{0}r:"+key))
	}
	thief := must(r.locker().TryAcquire(context.Background(), key))
	return func() { thief.Release(context.Background()) }
}

// hide makes the nodes lose all requests that name the key of an order, until back is called.
func (r *rig) hide() (back func()) {
	var seen atomic.Bool
	for _, n := range r.nodes {
		n.OnRequest(func(args []string) testutil.Action {
			return testutil.Action{DropRequest: !seen.Load() && strings.Contains(strings.Join(args, " "), "r:5:order")}
		})
	}
	return func() { seen.Store(true) }
}
