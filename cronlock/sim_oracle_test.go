package cronlock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/leader"
	"github.com/lockkit/lockkit/cronlock"
	"github.com/lockkit/lockkit/internal/pause"
	"github.com/lockkit/lockkit/internal/sim"
)

// An oracle knows the records that the nodes were asked to write, and all runs. It judges each run by the rules of the
// package documentation. world.mu guards all fields except spans.
type oracle struct {
	ticks       map[int64]*tick // ticks that were started, or may have been
	last        *visit          // the latest run of a tick
	visits      []*visit        // all runs
	runs        sim.Exclusion
	others      map[time.Time]int // the number of starts of each tick of the second service
	otherStarts []time.Time       // when the runs of that service began
	emptied     bool              // a node has lost its memory
	token       uint64
	reign           // the latest term
	fewest      int // the smallest number of starts that a replica allows
	spans
}

// A tick is the oracle's knowledge about one tick of the schedule.
type tick struct {
	at time.Time
	// least is the smallest number of starts that is allowed by a replica that may have recorded a start. most is the
	// largest number that is allowed by a replica that may have recorded the first start.
	least, most int
	begun, sure int             // the last start that may be on record, and the last that is confirmed
	when        []time.Time     // since when each start may be on record
	asked       []*cronlock.Job // the jobs that may have recorded a start
	forgotten   bool            // the nodes may have lost a record of the tick
	ending      bool            // its end may be on record
	ended       bool            // its end was confirmed
	wrong       bool            // it ended with an error
	late        bool            // its run had lost the lease by the time its end was confirmed
	endedAt     time.Time
	unrecorded  bool // the observer was notified that the end was not recorded
}

// A visit is one run of the job's function.
type visit struct {
	cronlock.Run
	p           *process
	job         *cronlock.Job
	starts      int   // the number of starts that the process allowed when the run began
	tick        *tick // nil in a run by hand
	ctx         context.Context
	leave       func()
	began, over time.Time
	told        bool // its context had ended before Close or Remove was called
	completed   bool
	err         error
}

func (w *world) tick(at time.Time) *tick {
	t := w.oracle.ticks[at.UnixNano()]
	if t == nil {
		t = &tick{at: at}
		w.oracle.ticks[at.UnixNano()] = t
	}
	return t
}

// recording is called when a start of a tick may be on record from now on. It checks that the latest tick need not be
// started again first.
func (w *world) recording(p *process, at time.Time, attempt int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.dead {
		return
	}

	t := w.tick(at)
	if last := w.last; last != nil && t.begun == 0 && at.After(last.Tick) && w.owes(last.tick, p) {
		if n, doubt := w.between(last.tick, at); !doubt && n < 99 && !t.forgotten {
			w.Violation("%s starts %s, and %s was not completed", p.name, clock(at), clock(last.Tick))
		}
	}

	if attempt == 1 && t.begun == 0 {
		t.least, t.most = p.starts, p.starts
	} else if attempt == 1 {
		t.least, t.most = min(t.least, p.starts), max(t.most, p.starts)
	} else {
		t.least = min(t.least, p.starts) // the smallest number of all replicas that have started the tick counts
	}

	for t.begun < attempt {
		t.begun++
		t.when = append(t.when, time.Now())
	}

	t.asked = append(t.asked, p.job)
	p.writing, p.attempt = at, attempt
}

// unbegun reports whether the first start of a tick is on record, and job alone can have recorded it, but has neither
// got a confirmation nor begun the run.
func (w *world) unbegun(t *tick, job *cronlock.Job) bool {
	return t.sure == 0 && w.neverRan(t, job) && w.onNodes(startKey(t.at, 1))
}

// neverRan reports whether job, and no other job, has asked for a start of the tick, and no run of it has begun.
func (w *world) neverRan(t *tick, job *cronlock.Job) bool {
	others := slices.ContainsFunc(t.asked, func(j *cronlock.Job) bool { return j != job })
	runs := slices.ContainsFunc(w.visits, func(v *visit) bool { return v.tick == t })
	return len(t.asked) > 0 && !others && !runs
}

// recorded is called when a start of a tick is confirmed.
func (w *world) recorded(p *process, at time.Time, attempt int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t := w.tick(at); !p.dead {
		t.sure = max(t.sure, attempt)
		if attempt == 1 && t.begun == 1 {
			t.least, t.most = p.starts, p.starts
		}
	}
}

// ending is called when the end of a tick may be on record from now on. It checks that the run has completed or was the
// last that is allowed, and that its lease has not been released.
func (w *world) ending(p *process, at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t := w.tick(at); !p.dead {
		t.ending = true
		p.closes = w.visit(p, t)
		if v := p.closes; v == nil || !v.completed && v.Attempt < min(t.least, p.starts) {
			w.Violation("%s records the end of tick %v, which did not complete", p.name, at)
		} else if errors.Is(context.Cause(v.lease()), core.ErrReleased) {
			w.Violation("%s records the end of tick %v, and has given the lease back", p.name, at)
		}
	}
}

// ended is called when the end of a tick is confirmed.
func (w *world) ended(p *process, at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t, v := w.tick(at), p.closes; !p.dead && v != nil && v.tick == t {
		t.ended, t.wrong, t.late, t.endedAt = true, v.err != nil, v.lease().Err() != nil, time.Now()
	}
}

// visit returns the ended run of tick t whose end p may record, or nil. A run with a live lease is preferred to a run
// with a lost lease, and that to a run with a released lease. Among these, a completed run is preferred, and then the
// run that ended last.
func (w *world) visit(p *process, t *tick) (last *visit) {
	rank := func(v *visit) (n int) {
		if v.lease().Err() == nil {
			n += 2
		} else if errors.Is(context.Cause(v.lease()), core.ErrReleased) {
			n -= 2
		}
		if v.completed {
			n++
		}
		return n
	}
	for _, v := range w.visits {
		if v.p == p && v.tick == t && !v.over.IsZero() && (last == nil || rank(v) > rank(last) || rank(v) == rank(last) && !v.over.Before(last.over)) {
			last = v
		}
	}
	return last
}

// succeeded reports whether the run has completed without an error.
func (v *visit) succeeded() bool { return !v.over.IsZero() && v.completed && v.err == nil }

// lease returns the context of the run's lease.
func (v *visit) lease() context.Context {
	lease, _ := core.FromContext(v.ctx)
	return lease.Context()
}

// held is called when a process has been granted the job's lease.
func (w *world) held(p *process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p.granted = time.Now()
}

// heard judges an event of a living process. w.mu must be held.
func (w *world) heard(p *process, kind core.EventKind) {
	switch kind {
	case cronlock.EventRun:
		w.judgeSuperseded(p)
		p.superseded = append(p.superseded, 0)
	case cronlock.EventSuperseded:
		p.superseded[len(p.superseded)-1]++ // these events follow the event of the run that supersedes the ticks
	case cronlock.EventUnrecorded:
		gives := func(v *visit) bool { return v.p == p && v.tick != nil && v.completed && v.lease().Err() == nil }
		if i := slices.IndexFunc(w.visits, gives); i >= 0 && !p.closed {
			w.Violation("%s gives up to record the end of %s, and its lease lives", p.name, clock(w.visits[i].Tick))
		}
		if w.last != nil && w.last.p == p {
			w.last.tick.unrecorded = true
		}
		w.mustHaveAReason(p, w.ttl, "an end is not recorded")
	case cronlock.EventUnavailable:
		w.mustHaveAReason(p, w.ttl, string(kind))
	case leader.EventDeposed:
		p.termEnded = time.Now()
		w.mustHaveAReason(p, w.ttl, string(kind))
	case leader.EventResigned:
		p.termEnded = time.Now()
		if p.resigned = time.Now(); !p.asked {
			w.Violation("%s resigned, and nobody asked it to", p.name)
		}
	}
}

// mustHaveAReason reports a violation if a run was stopped or a request refused, and nothing has been wrong for the
// time within.
func (w *world) mustHaveAReason(p *process, within time.Duration, what string) {
	if w.quiet(time.Now().Add(-within)) {
		w.Violation("%s: %s, and all is well", p.name, what)
	}
}

// begin adds a run that starts, and judges it. It returns nil if the process is dead.
func (w *world) begin(p *process, ctx context.Context, run cronlock.Run) *visit {
	w.reach("running", p)
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.dead {
		return nil
	}

	v := &visit{Run: run, p: p, job: p.job, starts: p.starts, ctx: ctx, began: time.Now()}
	w.Tracef("%s runs %s, attempt %d, previous %s", p.name, clock(run.Tick), run.Attempt, clock(run.Previous))

	p.running++
	p.between = append(p.between, -1)
	if p.under != nil || p.scheduler != nil {
		if p.listened--; p.listened < 0 {
			w.Violation("%s runs %s, and its listeners have not heard of that", p.name, clock(run.Tick))
		}
	}
	v.leave = w.runs.Enter(w.Trial, ctx, "job", p.name+" "+clock(run.Tick))

	if run.FencingToken <= w.token {
		w.Violation("fencing token %d after %d", run.FencingToken, w.token)
	}
	w.token = max(w.token, run.FencingToken)

	if !p.left.IsZero() && v.began.After(p.left) && (run.Tick.IsZero() || !run.Tick.Equal(p.wrote)) {
		w.Violation("%s runs %s after Close or Remove", p.name, clock(run.Tick))
	}

	w.visits = append(w.visits, v)
	if run.Tick.IsZero() {
		w.Count("by hand")
		p.answers++
		if run.Attempt != 0 || !run.Previous.IsZero() || !run.Next.IsZero() {
			w.Violation("a run by hand is %+v", run)
		}
		return v
	}

	v.tick = w.tick(run.Tick)
	w.judgeInstant(v)
	w.judgeStarts(v)
	w.judgeOrder(v)
	w.judgePrevious(v)
	w.judgeTerm(v)

	if w.last == nil || !v.Tick.Before(w.last.Tick) {
		w.last = v
	}
	return v
}

func clock(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Format("15:04:05.999")
}

// judgeInstant checks that the run's tick is an instant of the schedule, is due by the nodes' clocks, is the latest due
// tick, and is no older than the grace.
func (w *world) judgeInstant(v *visit) {
	if !w.schedule.Next(v.Tick.Add(-1)).Equal(v.Tick) || v.Tick.Location() != time.UTC || !v.Next.Equal(w.schedule.Next(v.Tick)) {
		w.Violation("%v, with %v next, is no tick of the schedule", v.Tick, v.Next)
	}

	behind, ahead := w.clocks()
	slack := 5*time.Millisecond + 10*w.delay()
	if v.began.Add(ahead + slack).Before(v.Tick) {
		w.Violation("tick %s starts %v early", clock(v.Tick), v.Tick.Sub(v.began.Add(ahead)))
	}

	if v.Attempt > 1 || v.unbegun() {
		return
	}

	// A poll takes at most a TTL, and the grace counts from its beginning.
	if late := v.p.granted.Add(behind - w.ttl).Sub(v.Tick); late > w.grace+slack {
		w.Violation("tick %s is claimed %v late, the grace is %v", clock(v.Tick), late, w.grace)
	} else if late > 2*time.Second {
		w.Count("late")
	}

	if !v.Next.IsZero() && v.Next.Before(v.p.granted.Add(behind-slack)) {
		w.Violation("tick %s starts, and %s was due when the lease was granted", clock(v.Tick), clock(v.Next))
	}
}

// unbegun reports whether an earlier claim of this job may have recorded the first start of the tick without beginning
// the run. With AtLeastOnce, that start counts as one that did not complete.
func (v *visit) unbegun() bool {
	t := v.tick
	return v.p.starts > 1 && slices.Contains(t.asked, v.job) && len(t.when) > 0 && t.when[0].Before(v.p.granted)
}

// isOf reports whether v is a run of the job j, and so whether j knows of it. A process that is closing has no job any
// more.
func (v *visit) isOf(j *cronlock.Job) bool { return j != nil && v.job == j }

// endedBefore reports whether the end of the tick was on record before the replica of the later run v read the records.
// If the lease was lost before the end was recorded, the next replica may have got the lease and read the records
// first.
func (t *tick) endedBefore(v *visit) bool {
	return t.ended && !(t.late && v.p.granted.Before(t.endedAt))
}

// judgeStarts checks that a tick is started at most n times, that each start is recorded before the run begins, and
// that a completed tick is not started again.
func (w *world) judgeStarts(v *visit) {
	t := v.tick
	if t.endedBefore(v) && w.onNodes(endKey(t.at)) {
		w.Violation("tick %s is started, and its end is on record", clock(v.Tick))
	}

	earlier := w.visits[:len(w.visits)-1] // all except v
	if slices.ContainsFunc(earlier, func(b *visit) bool { return b.tick == t && b.isOf(v.job) && b.completed }) {
		w.Violation("%s starts tick %s again, which it has completed itself", v.p.name, clock(v.Tick))
	}

	if t.forgotten {
		w.Count("excused: forgotten")
		return
	}

	if slices.ContainsFunc(earlier, func(b *visit) bool { return b.tick == t && v.Attempt > b.starts }) {
		w.Violation("tick %s: start %d, and a replica that started it allows fewer", clock(v.Tick), v.Attempt)
	}
	if v.Attempt > v.p.starts || v.Attempt > 1 && v.Attempt > t.most || v.Attempt < 1 {
		w.Violation("tick %s: start %d, and it may have %d by this replica, %d by the first", clock(v.Tick), v.Attempt, v.p.starts, t.most)
	}

	if v.Attempt > t.sure && !w.onNodes(startKey(t.at, v.Attempt)) {
		w.Violation("tick %s: start %d is not recorded", clock(v.Tick), v.Attempt)
	}

	if v.Attempt == 1 {
		return
	}

	w.Count("again")
	w.judgePace(v)
	switch before := w.last; {
	case t.endedBefore(v):
		w.Violation("tick %s is started again after its end was recorded", clock(v.Tick))
	case before != nil && before.tick == t && before.completed && !t.unrecorded && !before.p.dead && !errors.Is(context.Cause(before.lease()), core.ErrLost):
		if !t.ending {
			w.Violation("tick %s is started again, and it has completed", clock(v.Tick))
		}
		w.Count("again: the end is in doubt")
	}
}

// judgePace checks that the starts of a tick are recorded at least a second apart. It judges only while the nodes'
// clocks agree.
func (w *world) judgePace(v *visit) {
	behind, ahead := w.clocks()
	if behind != ahead || w.Is("no window") == 1 {
		return
	}

	slack := 50*time.Millisecond + 10*w.delay()
	if when := v.tick.when; len(when) >= v.Attempt {
		if apart := when[v.Attempt-1].Sub(when[v.Attempt-2]); apart < time.Second-slack {
			w.Violation("start %d of tick %s follows after %v", v.Attempt, clock(v.Tick), apart)
		}
	}
}

// startKey returns the key of the record of a start.
func startKey(tick time.Time, attempt int) string {
	return core.Key("cron", "service", "job", "start", tick.Format(time.RFC3339Nano), strconv.Itoa(attempt))
}

// endKey returns the key of the record of an end.
func endKey(tick time.Time) string {
	return core.Key("cron", "service", "job", "end", tick.Format(time.RFC3339Nano))
}

// onNodes reports whether a quorum of nodes has the record of key, also if its writer got no confirmation.
func (w *world) onNodes(key string) bool {
	return sim.Recorded(w.nodes, w.first.KeyPrefix(), key, -1) > len(w.nodes)/2
}

// judgeOrder checks that ticks, and the starts of a tick, begin in order. It also stores for judgeSuperseded how many
// ticks the run supersedes.
func (w *world) judgeOrder(v *visit) {
	before := w.last
	if before == nil || v.tick.forgotten || before.tick.forgotten {
		return
	}

	if v.Tick.Before(before.Tick) || v.tick == before.tick && v.Attempt <= before.Attempt {
		w.Violation("start %d of tick %s after start %d of %s", v.Attempt, clock(v.Tick), before.Attempt, clock(before.Tick))
	}

	between, doubt := w.between(before.tick, v.Tick)
	if v.tick == before.tick || between >= 99 {
		return
	}
	// If the tick is unbegun, an earlier claim may have reported the superseded ticks.
	if !doubt && v.p.running == 1 && v.Attempt == 1 && !v.unbegun() {
		v.p.between[len(v.p.between)-1] = between
	}
}

// judgeSuperseded checks that the observer was notified of each tick that the latest run superseded, before it is
// notified of another run.
func (w *world) judgeSuperseded(p *process) {
	run := len(p.superseded) - 1
	if run < 0 || run >= len(p.between) || p.between[run] < 0 {
		return
	}

	if told := p.superseded[run]; told != p.between[run] {
		w.Violation("run %d of %s: %d ticks are superseded, %d told", run, p.name, p.between[run], told)
	}
}

// between returns the number of ticks between two ticks, and whether one of them may have been started.
func (w *world) between(before *tick, after time.Time) (n int, doubt bool) {
	for at := w.schedule.Next(before.at); at.Before(after); at = w.schedule.Next(at) {
		n++
		t := w.oracle.ticks[at.UnixNano()]
		doubt = doubt || t != nil && t.begun > 0
	}
	return n, doubt
}

// owes reports whether p certainly must start a tick again. A process does not start again a tick that it has
// completed.
func (w *world) owes(t *tick, p *process) bool {
	if slices.ContainsFunc(w.visits, func(v *visit) bool { return v.tick == t && v.isOf(p.job) && v.completed }) {
		return false
	}

	left := min(t.least, p.starts) - t.begun
	if left > 0 && !t.ending && t.sure < t.begun {
		w.Count("in doubt: a start")
	}
	if t.ending && !t.ended {
		w.Count("in doubt: an end")
	}
	if !t.ending && p.starts > t.begun && left <= 0 {
		w.Count("fewer starts by another policy")
	}

	return left > 0 && t.sure == t.begun && !t.ending && !t.forgotten
}

// judgePrevious checks that Previous is the last earlier tick that is known to have completed without an error.
func (w *world) judgePrevious(v *visit) {
	allowed := []time.Time{{}}
	for i := len(w.visits) - 2; i >= 0; i-- { // the last visit is v
		before := w.visits[i]
		if before.tick == nil {
			continue
		}
		if before.tick.forgotten || v.tick.forgotten {
			return
		}

		t := before.tick
		// If the end of t was recorded late, a replica may have read the records before that, started a tick in
		// between, and died.
		_, started := w.between(t, v.Tick)
		right := t.ended && !t.wrong || !t.ended && slices.ContainsFunc(w.visits, func(v *visit) bool { return v.tick == t && !v.over.IsZero() && v.err == nil })

		switch {
		case t == v.tick || !t.ending || !right:
			allowed = []time.Time{before.Previous}
			w.Count("previous after failures")
		case t.endedBefore(v) && !(t.late && started):
			allowed = []time.Time{t.at}
			w.Count("previous")
		default:
			allowed = []time.Time{before.Previous, t.at}
		}
		// The process knows of its own success even if that is not on record.
		if t != v.tick && before.job == v.job && before.succeeded() {
			allowed = []time.Time{t.at}
		}

		n := 1
		for at := w.schedule.Next(t.at); at.Before(v.Tick) && n < 100; at = w.schedule.Next(at) {
			n++
		}
		if n >= 99 {
			allowed = append(allowed, time.Time{})
		}
		break
	}
	// A process knows that its own run succeeded even if that is not on record. It records it with its next start.
	knows := func(before *visit) bool {
		return before.tick != nil && before.Tick.Equal(v.Previous) && before.Tick.Before(v.Tick) && before.Tick.After(allowed[0]) && before.succeeded()
	}

	if !slices.ContainsFunc(allowed, v.Previous.Equal) && !slices.ContainsFunc(w.visits, knows) {
		w.Violation("tick %s: Previous is %s, must be one of %v", clock(v.Tick), clock(v.Previous), allowed)
	}
}

// end is called when a run has ended, and judges the end.
func (v *visit) end(err error) {
	v.p.reach("returned", v.p)
	w := v.p.world
	w.mu.Lock()
	defer w.mu.Unlock()

	v.p.running--
	v.leave()
	v.over, v.err = time.Now(), err
	if v.p.dead {
		return
	}
	// A process with a job polls it at once after a run.
	if v.p.job == nil || v.p.job != v.job || v.p.elector != nil && w.leads != v.p {
		w.trouble(0, "a run ends where nobody looks")
	}

	ended := v.ctx.Err() != nil
	v.completed = err == nil || !ended && !errors.Is(err, errPanic)
	w.Tracef("%s ends %s: %v", v.p.name, clock(v.Tick), err)

	switch {
	case ended && err == nil:
		w.Count("returned after the end")
	case ended:
		w.Count("told to stop")
	case err != nil && v.completed:
		w.Count("own error")
	}

	if ended && !v.told && v.p.isClosing && v.tick != nil && v.p.Is(fmt.Sprint("host ", v.p.who)) == 0 && v.lease().Err() == nil {
		w.Violation("the context of %s has ended with its Service, and its lease lives", clock(v.Tick))
	}

	if ended && v.p.left.IsZero() {
		w.mustHaveAReason(v.p, v.over.Sub(v.began), "the context of a run ended")
		if cause := context.Cause(v.ctx); !errors.Is(cause, core.ErrLost) && !errors.Is(cause, context.Canceled) {
			w.Violation("the context of a run ended with %v", cause)
		}
	}
}

// leaves is called before Close or Remove. A run whose start is being recorded may still begin afterwards: p.wrote is
// its tick. w.mu must be held.
func (w *world) leaves(p *process) {
	p.left = time.Now()
	for _, v := range w.visits {
		v.told = v.told || v.p == p && v.ctx.Err() != nil
	}

	p.wrote = p.writing
	if slices.ContainsFunc(w.visits, func(v *visit) bool { return v.p == p && v.Tick.Equal(p.writing) && v.Attempt == p.attempt }) {
		p.wrote = time.Time{}
	}
}

// stopped is called after the host of p has ended, or gocron has removed the job. It checks that the contexts of all
// runs that began before that have ended.
func (w *world) stopped(p *process, at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, v := range w.visits {
		if v.p == p && v.over.IsZero() && v.ctx.Err() == nil && v.began.Before(at) {
			w.Violation("the context of %s has not ended with its host", clock(v.Tick))
		}
	}
}

// secondJob is the job of the second service.
const secondJob = "other"

// other is the function of that job. It checks that no two runs overlap, and that no tick is started more than twice
// unless a node has lost its memory.
func (p *process) other(ctx context.Context) error {
	run, _ := cronlock.FromContext(ctx)
	p.mu.Lock()
	if p.dead {
		p.mu.Unlock()
		return core.ErrClosed
	}

	leave := p.runs.Enter(p.Trial, ctx, secondJob, p.name+" "+clock(run.Tick))
	p.others[run.Tick]++
	p.otherStarts = append(p.otherStarts, time.Now())
	if n := p.others[run.Tick]; n > 2 && !p.emptied {
		p.Violation("tick %s of the second service is started %d times", clock(run.Tick), n)
	}

	long := time.Duration(p.rng.Int64N(int64(otherTakes)))
	p.mu.Unlock()
	defer leave()

	if !pause.For(ctx, long) {
		return context.Cause(ctx)
	}
	return nil
}

// otherPeriod returns the period of the job of the second service.
func otherPeriod(p sim.Program) time.Duration { return max(3*time.Second, period(p)) }

// otherTakes is the longest time that a run of that job takes.
const otherTakes = 4 * time.Second

// judgeSecond checks the progress of the second service: after each run the next one begins in time, unless something
// was wrong in between. It judges only programs in which no process is closed or killed.
func (w *world) judgeSecond() {
	ends := func(s sim.Step) bool { return strings.HasPrefix(s.Do, "close") || strings.HasPrefix(s.Do, "kill") }
	if w.Is("second") == 0 || slices.ContainsFunc(w.Steps, ends) {
		return
	}
	w.mu.Lock()
	starts := append(slices.Clone(w.otherStarts), time.Now())
	w.mu.Unlock()
	last := w.Began.Add(w.tail()) // by then the nodes vote, and their clocks are known
	for _, start := range starts {
		if w.calm(last, start) {
			w.Count("progress of the second service")
			if start.Sub(last) > otherTakes+otherPeriod(w.Program)+bound {
				w.Violation("the second service has started nothing from %s to %s", clock(last), clock(start))
			}
		}
		last = start
	}
}

// calm reports whether nothing was wrong with any node or replica between two instants.
func (w *world) calm(from, to time.Time) bool {
	w.spansMu.Lock()
	defer w.spansMu.Unlock()
	wrong := func(s span) bool { return s.from.Before(to) && s.to.After(from) }
	return !slices.ContainsFunc(w.troubles, wrong) && !slices.ContainsFunc(w.nodesIll, wrong) && !slices.ContainsFunc(w.replicasIll, wrong)
}

// looksBegin is called when a poll asks for the job's lease. It checks that no other poll of the process does so.
func (w *world) looksBegin(p *process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p.taking++
	if p.taking > 1 && !p.removed {
		w.Violation("%s: %d looks ask for the lease of the job at once", p.name, p.taking)
	}
}

// looksEnd is called when such a request has ended.
func (w *world) looksEnd(p *process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p.taking--
}
