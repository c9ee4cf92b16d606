package queuelock

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/sim"
	"github.com/lockkit/lockkit/testutil"
)

// outside returns a middleware around the middleware under test. It sees the results that asynq gets.
func (p *simProcess) outside(next asynq.Handler) asynq.Handler {
	return asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) (err error) {
		ended, stop := p.withApplication(ctx)
		defer stop()
		d := p.s.arrives(p, ctx, ended, t)
		err = fmt.Errorf("panic: %w", errSim)
		defer func() { p.s.leaves(d, errors.Unwrap(err)) }()
		if p.s.Is("base") == 0 {
			ctx = ended
		}
		if err = next.ProcessTask(context.WithValue(ctx, simDeliveryKey{}, d), t); err != nil {
			return fmt.Errorf("outside: %w", err)
		}
		return nil
	})
}

// event receives the middleware's events about deliveries, and the Scheduler's about ticks.
func (p *simProcess) event(ctx context.Context, e core.Event) {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	if p.dead || e.Source != "queuelock" {
		return
	}
	p.s.Count(string(e.Kind))
	d := delivered(ctx)
	if p.s.quiet && (e.Kind == EventTickMissed || e.Kind == EventDuplicate && d.task.spec == nil) {
		p.s.Violation("%s, of a tick", e.Kind)
	}
	switch {
	case e.Kind == EventTickMissed:
		p.missed = append(p.missed, time.Now())
		if after := p.scheduler.now().UnixNano() % int64(simPeriod); !p.set.Load() && after > int64(time.Second) {
			p.s.Violation("a tick was given up %v before the next one", simPeriod-time.Duration(after))
		}
	case d == nil:
		p.s.Violation("%s of no delivery", e.Kind)
	case e.Kind == EventForeignID:
		if p.foreign == nil {
			p.foreign = map[string]int{}
		}
		if p.foreign[e.Name]++; p.foreign[e.Name] > 1 || d.remembered {
			p.s.wrong(d, "%s", e.Kind)
		}
	default:
		d.events = append(d.events, e.Kind)
		p.s.Tracef("%s: %s", d.who, e.Kind)
	}
}

// listen wraps callbacks of the configuration, and judges the calls that asynq makes.
func (s *simulation) listen(p *simProcess, cfg *asynq.Config) {
	delay, isFailure := cfg.RetryDelayFunc, cfg.IsFailure
	cfg.RetryDelayFunc = func(n int, err error, t *asynq.Task) time.Duration {
		d := delay(n, err, t)
		rest := cooldownOf(err)
		if spec := s.specOf(t); spec != nil && n >= spec.retries() {
			s.Violation("RetryDelayFunc is asked for retry %d of %d", n, spec.retries())
		}
		switch {
		case errors.Is(err, asynq.ErrLeaseExpired):
			s.recovered(t)
		case errors.Is(err, ErrNotRun) && (d < rest || d > rest+2*time.Second || rest == 0 && d > 0):
			s.Violation("given back for %v: %v", d, err)
		}
		return d
	}
	cfg.IsFailure = func(err error) bool {
		failure := isFailure(err)
		if failure == errors.Is(err, ErrNotRun) {
			s.Violation("failure=%v: %v", failure, err)
		}
		return failure
	}
}

// archives observes a request to asynq's Redis. A task that asynq's recoverer archives with it may be archived.
func (s *simulation) archives(args []string) (pass testutil.Action) {
	const id, msg = 12, 13
	if len(args) <= msg || !strings.HasSuffix(args[6], ":archived") || !strings.Contains(args[msg], "task lease expired") {
		return pass
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tasks {
		if t.id == args[id] && t.in(args[msg]) {
			s.Count("archived by the recoverer")
			t.mayArchive = true
		}
	}
	return pass
}

// recovered records that asynq's recoverer counts a retry of a task.
func (s *simulation) recovered(t *asynq.Task) {
	n := (&simTask{spec: s.specOf(t)}).number()
	s.Count("recovered")
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recoveries[n]++
	for _, task := range s.tasks {
		if task.number() == n {
			task.notBefore = time.Time{}
		}
	}
}

// specOf returns the spec of a task, or nil for a tick.
func (s *simulation) specOf(t *asynq.Task) (spec *simSpec) {
	var payload simPayload
	_ = json.Unmarshal(t.Payload(), &payload)
	s.locked(func() {
		if payload.N >= 0 {
			spec = s.specs[payload.N]
		}
	})
	return spec
}

// exists returns the simTask of a task that asynq has, and creates it at the first call. o.mu must be held.
func (o *simOracle) exists(id, queue string, t *asynq.Task) *simTask {
	var payload simPayload
	_ = json.Unmarshal(t.Payload(), &payload)
	name := fmt.Sprintf("%s/%s/%d", queue, id, payload.N)
	task := o.tasks[name]
	if task == nil {
		if o.tasks[fmt.Sprintf("%s/%s/%d", queue, id, payload.N^1)] != nil {
			o.s.Count("one UUID of two tasks")
		}
		task = &simTask{queue: queue, id: id, kind: t.Type(), body: string(t.Payload())}
		if payload.N >= 0 {
			task.spec = o.specs[payload.N]
		} else {
			o.s.Count("tick")
		}
		o.tasks[name] = task
	}
	return task
}

// in reports whether a message in asynq's Redis belongs to the task. Its id does not say so, because two tasks may have
// the same id.
func (t *simTask) in(message string) bool { return strings.Contains(message, t.body) }

// leaves judges the result that asynq gets of a delivery.
func (o *simOracle) leaves(d *simDelivery, told error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.active, d)
	o.s.Tracef("%s: asynq is told %v", d.who, told)
	for _, key := range d.keys {
		delete(o.holders[key], d)
	}
	if d.p.dead {
		return
	}
	if len(d.held) > 0 {
		// A slow observer reports the loss of a lease late.
		time.AfterFunc(d.p.hearsLosses(), func() { o.keeps(d) })
	}

	want, fault := o.unrun(d, told)
	if d.ran {
		want, fault = o.ran(d, told)
	}
	if fault != "" {
		o.wrong(d, "%s: asynq is told %v", fault, told)
	}

	got := slices.DeleteFunc(slices.Clone(d.events), func(k core.EventKind) bool { return k == EventAbandoned })
	if !slices.Equal(got, want) {
		o.wrong(d, "events %v, want %v; asynq is told %v", got, want, told)
	}
	o.overstayed(d)

	givenBack := errors.Is(told, ErrNotRun) && !slices.Contains(d.events, EventArchived)
	if told != nil && !givenBack && !errors.Is(told, asynq.RevokeTask) {
		o.failsLocked(d)
		d.task.mayArchive = d.task.mayArchive || errors.Is(told, asynq.SkipRetry)
	}
	if givenBack && d.asynq.Err() == nil {
		o.givenBack(d, told)
	}
}

// keeps judges that a delivery that has ended holds no lease. A closed process is excused, because Close takes the
// leases away.
func (o *simOracle) keeps(d *simDelivery) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(d.held) > 0 && !d.p.closed {
		o.wrong(d, "keeps leases: %v", slices.Collect(maps.Keys(d.held)))
	}
}

// givenBack records when a task that was given back may be delivered again. It judges how many tasks are given back per
// time.
func (o *simOracle) givenBack(d *simDelivery, told error) {
	rest := cooldownOf(told)
	if time.Now().After(o.away) { // during an outage asynq may fail to record the time of the retry
		d.task.notBefore = time.Now().Add(rest - time.Millisecond)
	}
	// Tasks with a cooldown and tasks that are about to time out do not count.
	if at, _ := d.ctx.Deadline(); rest > 0 || time.Until(at) < 100*time.Millisecond {
		return
	}
	p := d.p
	p.returns = append(p.returns, time.Now())
	const span = 5
	most := 10*p.workers*span + 4*p.workers + 1
	if i := len(p.returns) - 1 - most; i >= 0 && time.Since(p.returns[i]) < span*time.Second {
		o.wrong(d, "%d tasks were given back within %v", most, time.Since(p.returns[i]))
	}
	if len(p.returns) > 100 {
		o.s.Count("a backlog is given back")
	}
}

// unrun returns the events that are expected for a delivery whose handler has not run, and the fault of its result, if
// any.
func (o *simOracle) unrun(d *simDelivery, told error) (events []core.EventKind, fault string) {
	key := o.lastKey(d)
	switch {
	case told == nil:
		rec := o.records[d.keys[0]]
		if !d.remembered || rec == nil {
			fault = "no duplicate of a completed task"
		}
		return []core.EventKind{EventDuplicate}, fault
	case slices.Contains(d.events, EventNoKey):
		unfit := d.task.spec != nil && d.task.spec.Do == "unfit" && o.s.Is("keys") > 0 && o.s.Is("optional") == 0
		if done := errors.Is(told, core.ErrDone) && time.Now().Before(o.doneTil[key]); !unfit && !done {
			fault = "has a key"
		}
		return []core.EventKind{EventNoKey}, fault
	case !errors.Is(told, ErrNotRun):
		return nil, "not run, and a failure"
	case d.isOver() && endedWithContext(told) && !errors.Is(told, core.ErrHeld) && !errors.Is(told, core.ErrUnavailable):
		return o.endedUnrun(d)
	case d.atLast:
		if time.Until(d.last) > time.Millisecond {
			fault = fmt.Sprintf("archived %v too early", time.Until(d.last))
		}
		return []core.EventKind{EventArchived}, fault
	case errors.Is(told, core.ErrHeld):
		return []core.EventKind{EventContended}, o.contended(d, told, key)
	}
	if o.quiet {
		fault = "the locks are within reach"
	}
	return []core.EventKind{EventUnavailable}, fault
}

// isOver reports whether the context of a delivery has ended, or its deadline has come. A context that the middleware
// derives may end before it.
func (d *simDelivery) isOver() bool {
	deadline, has := d.ctx.Deadline()
	return d.ctx.Err() != nil || has && !time.Now().Before(deadline)
}

// endedWithContext reports whether an error says that a context has ended. The deadline of a context and its cancellation
// may come at the same time.
func endedWithContext(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// endedUnrun is unrun for a delivery whose context has ended. On a last attempt, the middleware must not return before
// the deadline, unless asynq has taken the task back.
func (o *simOracle) endedUnrun(d *simDelivery) (events []core.EventKind, fault string) {
	switch taken := d.asynq.Err() != nil; {
	case !d.atLast && !taken:
		o.s.Count("given back further out")
	case !d.atLast:
	case time.Until(d.last) <= time.Millisecond && len(d.events) == 0 && (taken || d.p.closed):
		// asynq took the task back at the deadline, or the Locker closed then, and either may have come first.
		d.task.mayArchive = d.task.mayArchive || !taken
	case time.Until(d.last) <= time.Millisecond:
		return []core.EventKind{EventArchived}, ""
	case !taken && d.p.closed:
		d.task.mayArchive = true
		o.s.Count("excused: the Locker is closed before the server")
	case !taken:
		return nil, fmt.Sprintf("archived %v too early", time.Until(d.last))
	}
	return nil, ""
}

// lastKey returns the key that a delivery asked for last.
func (o *simOracle) lastKey(d *simDelivery) string {
	if len(d.keys) > 1 && d.asked[d.keys[1]] != nil {
		return d.keys[1]
	}
	return d.keys[0]
}

// contended judges a task that is given back because a key is held. It must have a reason: half of its time is over, no
// waiting place is free, or the key is in a cooldown.
func (o *simOracle) contended(d *simDelivery, told error, key string) (fault string) {
	a := d.asked[key]
	now := time.Now()
	switch {
	case a == nil || !errors.Is(a.last, core.ErrHeld):
		return "the key is not held"
	case rests(a.last) > 0:
		if cooldownOf(told) != rests(a.last) {
			fault = fmt.Sprintf("is to come again in %v, and its key rests for %v", cooldownOf(told), rests(a.last))
		}
		return fault
	case a.place && now.Before(d.half.Add(-slack)):
		return fmt.Sprintf("given back %v before half of its time is over", d.half.Sub(now))
	case a.waits == 0:
		o.s.Count("no place")
		if a.free > 0 {
			// A delivery that takes the place at this instant may be recorded only later.
			time.AfterFunc(time.Millisecond, func() { o.crowded(d, a) })
		}
	}
	return ""
}

// crowded judges a delivery that found no waiting place. It is a violation unless a place changed hands at that
// instant.
func (o *simOracle) crowded(d *simDelivery, a *simAsk) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !slices.ContainsFunc(d.p.moves, a.heard.Equal) {
		o.wrong(d, "does not wait although %d of %d places are free", a.free, d.p.places)
	}
}

// ran is unrun for a delivery whose handler has run.
func (o *simOracle) ran(d *simDelivery, told error) (events []core.EventKind, fault string) {
	var cool *cooldownError
	switch err := d.returned; {
	case d.abrupt:
		return nil, ""
	case err == nil || errors.Is(err, asynq.RevokeTask):
		return o.succeeded(d, told)
	case errors.As(err, &cool) && d.atLast:
		return []core.EventKind{EventArchived}, ""
	case errors.As(err, &cool):
		if !errors.Is(told, ErrNotRun) || cooldownOf(told) != cool.d {
			fault = "the handler has returned a Cooldown"
		}
		return []core.EventKind{EventCooldown}, fault
	case !errors.Is(told, err) || errors.Is(told, ErrNotRun):
		fault = "not what the handler has returned"
	}
	// After EventAbandoned asynq ignores the result.
	if d.lost && !errors.Is(told, core.ErrLost) && !slices.Contains(d.events, EventAbandoned) {
		fault = "does not say that the lease is lost"
	}
	return nil, fault
}

func (o *simOracle) succeeded(d *simDelivery, told error) (events []core.EventKind, fault string) {
	if d.returned == nil && d.ended {
		events = append(events, EventNilAfterCancel)
	}
	took, least, most := time.Since(d.returnedAt), 30*time.Second, 30*time.Second
	if !d.ctxEnd().Before(d.returnedAt) {
		least = min(least, max(d.last.Sub(d.returnedAt), 0))
	}
	if d.ctxEnd().After(d.returnedAt) {
		most = least
	}

	switch {
	case d.remembered && !d.begunCompletion && d.p.closed:
		events = append(events, EventUnrecorded)
	case d.begunCompletion != d.remembered:
		return events, "only completions of remembered tasks are recorded"
	case !d.remembered:
	case d.completion == nil:
		if took > most+slack {
			fault = fmt.Sprintf("its completion was tried for %v, not %v", took, most)
		}
	case errors.Is(d.completion, core.ErrLost):
		if o.quiet && !d.ended {
			fault = "refused without a reason"
		}
		if want := cmp.Or(d.returned, core.ErrLost); !errors.Is(told, want) { // a revoked task stays revoked
			fault = "its completion was refused"
		}
		return append(events, EventRefused), fault
	default:
		events = append(events, EventUnrecorded)
		if o.quiet || !d.p.closed && took < least-slack/10 || took > most+slack {
			fault = fmt.Sprintf("its completion was tried for %v, not %v", took, least)
		}
	}

	if told != d.returned && !errors.Is(told, d.returned) {
		fault = "not what the handler has returned"
	}
	return events, fault
}

// overstayed judges that EventAbandoned is reported if a handler does not return within the grace, and only then.
func (o *simOracle) overstayed(d *simDelivery) {
	if !d.ran {
		return
	}
	over := d.returnedAt.Sub(d.ctxEnd())
	if told := slices.Contains(d.events, EventAbandoned); over != d.p.grace && told != (over > d.p.grace) {
		o.wrong(d, "returned %v after its context had ended; told=%v", over, told)
	}
}

// forgets records that a node is about to lose its memory. It marks the records that a quorum may not report
// afterwards.
func (o *simOracle) forgets(nodes []*testutil.Node, lost int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for identity, rec := range o.records {
		rec.lost = rec.lost || sim.Recorded(nodes, o.s.locks.KeyPrefix(), identity, lost) < 2
	}
	clear(o.rests)
	o.forgot = time.Now()
}

// loses records that asynq's Redis is away for the given time. Tasks that were just given back may be delivered again
// at once.
func (o *simOracle) loses(long time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, t := range o.tasks {
		t.notBefore = time.Time{}
	}
	if until := time.Now().Add(long); until.After(o.away) {
		o.away = until
	}
}

// running returns how many deliveries have not ended in live processes. After a violation it returns a negative number,
// so that the simulation does not wait for them.
func (o *simOracle) running() (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failed {
		return math.MinInt32
	}
	for d := range o.active {
		if !d.p.dead {
			n++
		}
	}
	return n
}

// someDelivery returns an active delivery of the process, or nil if there is none.
func (o *simOracle) someDelivery(p *simProcess, which int) *simDelivery {
	o.mu.Lock()
	defer o.mu.Unlock()
	of := slices.DeleteFunc(slices.Collect(maps.Keys(o.active)), func(d *simDelivery) bool { return d.p != p })
	if len(of) == 0 {
		return nil
	}
	slices.SortFunc(of, func(a, b *simDelivery) int { return strings.Compare(a.who, b.who) })
	return of[which%len(of)]
}
