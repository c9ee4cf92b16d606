package queuelock

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/hibiken/asynq"
	"github.com/robfig/cron/v3"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/pause"
)

const (
	// patience is for how long a tick is tried to be enqueued, unless the next one comes first.
	patience = 10 * time.Minute
	// tickRetention is for how long a tick is recorded as enqueued. Nobody tries one that is older than patience, so
	// that is what it has to outlast; the rest is for clocks of nodes that are set meanwhile.
	tickRetention = time.Hour
	// spread is over how long replicas come for a tick, so that one of them is first, and not always the same.
	spread = 50 * time.Millisecond
	// again is the pause after a try that failed.
	again = time.Second / 4
	// nap is the longest sleep. Half of the time until a tick is the longest, too, so that clocks that are set, or
	// come to be known, are noticed before it.
	nap = time.Minute
)

// An entry is one schedule of a Scheduler.
type entry struct {
	s    *Scheduler
	name string
	next func(time.Time) time.Time // the first tick after
	task *asynq.Task
	opts []asynq.Option
	open context.Context // ends with Unregister
	end  context.CancelFunc
}

func nameOf(cronspec string, task *asynq.Task) string {
	if task == nil {
		return "nil" // which is refused
	}
	sum := sha256.Sum256(task.Payload())
	return core.Key(task.Type(), cronspec, hex.EncodeToString(sum[:8]))
}

// parse reads a cronspec as asynq does. What it returns names the same instants on all replicas.
func parse(spec string, in *time.Location, now time.Time) (func(time.Time) time.Time, error) {
	if strings.Contains(spec, "TZ=") && !strings.Contains(spec, " ") {
		return nil, errors.New("nothing follows the time zone") // cron panics
	}
	schedule, err := cron.ParseStandard(spec)
	if err != nil {
		return nil, err
	}
	if every, ok := schedule.(cron.ConstantDelaySchedule); ok { // which counts from whenever it is asked
		period := int64(every.Delay / time.Second)
		return func(t time.Time) time.Time { return time.Unix((t.Unix()/period+1)*period, 0) }, nil
	}
	next := func(t time.Time) time.Time { return schedule.Next(t.In(in)) }
	if next(now).IsZero() {
		return nil, errors.New("is not due within five years")
	}
	return next, nil
}

// run enqueues the ticks that fall due from now on.
func (e *entry) run() {
	for last := e.s.now(); e.open.Err() == nil; {
		now := e.s.now()
		if now.Before(last) { // the nodes' clocks are known better by now, or were set; what is enqueued is recorded
			last = now
		}
		at := e.next(last)
		if at.IsZero() {
			return // five years without a tick
		}
		if early := at.Sub(now); early > 0 {
			pause.For(e.open, min(max(early/2, time.Second), early, nap))
			continue
		}
		last = at
		if until := e.until(at); now.After(until) { // this process has slept, like all that fell due meanwhile
			last = now
		}
		e.tick(at)
	}
}

// until is when a tick is given up.
func (e *entry) until(at time.Time) time.Time {
	until := at.Add(patience)
	if next := e.next(at); next.Before(until) && !next.IsZero() {
		return next
	}
	return until
}

var (
	errEarly = errors.New("its time has not come")
	errLate  = errors.New("its time has passed")
)

// tick enqueues a tick, unless another replica does.
func (e *entry) tick(at time.Time) {
	until := e.until(at)
	ctx, cancel := context.WithTimeout(e.open, max(until.Sub(e.s.now()), time.Second))
	defer cancel()
	pause.For(ctx, rand.N(spread))
	var cause error // the last failure before the time was up: what fails because of that says little
	for {
		_, err := e.enqueue(ctx, at, until)
		if cause == nil || ctx.Err() == nil && !errors.Is(err, errLate) {
			cause = err
		}
		switch {
		case err == nil:
			e.event(ctx, EventTickEnqueued)
			return
		case errors.Is(err, ErrEnqueued):
			return
		case e.open.Err() != nil: // left to the other replicas
			return
		case errors.Is(err, errEarly): // run waits for it
			return
		case ctx.Err() != nil, errors.Is(err, errLate):
			e.missed(at, cause)
			return
		}
		pause.For(ctx, again+rand.N(spread))
	}
}

func (e *entry) enqueue(ctx context.Context, at, until time.Time) (*asynq.TaskInfo, error) {
	opts := append(e.opts[:len(e.opts):len(e.opts)], asynq.TaskID(tickPrefix+core.Key(e.s.service, e.name, instant(at))))
	call := []core.CallOption{core.Name(e.task.Type()), core.Retention(tickRetention)}
	return enqueueOnce(ctx, e.s.locker, e.key(at), call, func(ctx context.Context) (*asynq.TaskInfo, error) {
		switch now := e.s.now(); { // again: now the nodes have answered
		case now.Before(at):
			return nil, errEarly
		case now.After(until):
			return nil, errLate
		}
		return enqueueNow(ctx, e.s.client, e.task, opts)
	})
}

// missed says that a tick was not enqueued, unless another replica has done it.
func (e *entry) missed(at time.Time, err error) {
	if state, _ := e.s.locker.Inspect(e.open, e.key(at)); state.Record != nil {
		return
	}
	e.event(e.open, EventTickMissed)
	e.s.locker.Logger().Error("queuelock: a tick was not enqueued, neither here nor, as far as can be told, by another replica, and is not tried any more: enqueue its task by hand if that is needed",
		"service", e.s.service, "entry", e.name, "type", e.task.Type(), "tick", instant(at), "err", err)
}

func (e *entry) key(at time.Time) string {
	return core.Key("queue", "tick", e.s.service, e.name, instant(at))
}

func (e *entry) event(ctx context.Context, kind core.EventKind) {
	e.s.locker.Event(ctx, core.Event{Source: "queuelock", Name: e.task.Type(), Kind: kind})
}

func instant(at time.Time) string { return at.UTC().Format(time.RFC3339) }

// pause returns when d has passed, or ctx has ended.
