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
	"github.com/lockkit/lockkit/cronlock"
	"github.com/lockkit/lockkit/cronlock/leader"
	"github.com/lockkit/lockkit/internal/pause"
	"github.com/lockkit/lockkit/internal/sim"
)

// An oracle knows what the nodes were asked to record and what ran, and says what may run by the rules of the package
// document. It is guarded by world.mu, but for the spans.
type oracle struct {
	ticks       map[int64]*tick // that were started, or may have been
	last        *visit          // the latest run of a tick
	visits      []*visit        // all runs
	runs        sim.Exclusion
	others      map[time.Time]int // starts of the ticks of the second service
	otherStarts []time.Time       // of runs of that job
	emptied     bool              // a node has lost its memory
	token       uint64
	reign           // of who was elected last
	fewest      int // starts that any replica allows
	spans
}

// A tick is what is known of one.
type tick struct {
	at          time.Time
	least, most int             // starts that it may have: by all that may have recorded one, and at most by those that may have recorded the first
	begun, sure int             // the last start that may be recorded, and that is
	when        []time.Time     // a start may be recorded since, by its number
	asked       []*cronlock.Job // that may have recorded one
	forgotten   bool
	ending      bool // its end may be recorded
	ended       bool // it is
	wrong       bool // with an error
	late        bool // when its run had lost the lease: another may have started
	endedAt     time.Time
	unrecorded  bool // it was told not to be
}

// A visit is one run of the function.
type visit struct {
	cronlock.Run
	p           *process
	job         *cronlock.Job
	starts      int   // how many the process allowed when the run began
	tick        *tick // nil: by hand
	ctx         context.Context
	leave       func()
	began, over time.Time
	told        bool // to stop, before its Service closed
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

// recording is told when a start may be recorded from now on, and recorded when it is.
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
		t.least = min(t.least, p.starts) // of all replicas that have started the tick, the smallest number counts
	}
	for t.begun < attempt {
		t.begun++
		t.when = append(t.when, time.Now())
	}
	t.asked = append(t.asked, p.job)
	p.writing, p.attempt = at, attempt
}

// unbegun reports whether a tick has a start on record that can only be one job's, which was not told so and has not begun it.
func (w *world) unbegun(t *tick, job *cronlock.Job) bool {
	return t.sure == 0 && w.neverRan(t, job) && w.onNodes(startKey(t.at, 1))
}

// neverRan reports whether only one job has asked for a start of the tick, and no run of it has begun.
func (w *world) neverRan(t *tick, job *cronlock.Job) bool {
	others := slices.ContainsFunc(t.asked, func(j *cronlock.Job) bool { return j != job })
	runs := slices.ContainsFunc(w.visits, func(v *visit) bool { return v.tick == t })
	return len(t.asked) > 0 && !others && !runs
}

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

// ending is told when an end may be recorded from now on, and ended when it is.
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

func (w *world) ended(p *process, at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t, v := w.tick(at), p.closes; !p.dead && v != nil && v.tick == t {
		t.ended, t.wrong, t.late, t.endedAt = true, v.err != nil, v.lease().Err() != nil, time.Now()
	}
}

// visit is the run of a tick on a process whose end it may record: one that has its lease, or has lost it and not given it
// back, has completed, has ended last, in this order.
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

// lease is the context of the lease that the run has.
func (v *visit) lease() context.Context {
	lease, _ := core.FromContext(v.ctx)
	return lease.Context()
}

// held notes when a process was granted the lease of the job.
func (w *world) held(p *process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p.granted = time.Now()
}

// heard is told of the events of a process that lives.
func (w *world) heard(p *process, kind core.EventKind) {
	switch kind {
	case cronlock.EventRun:
		w.judgeSuperseded(p)
		p.superseded = append(p.superseded, 0)
	case cronlock.EventSuperseded:
		p.superseded[len(p.superseded)-1]++ // after the event of its run
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

// mustHaveAReason demands that a process is not told to stop, or refused, while all is well.
func (w *world) mustHaveAReason(p *process, within time.Duration, what string) {
	if w.quiet(time.Now().Add(-within)) {
		w.Violation("%s: %s, and all is well", p.name, what)
	}
}

// begin is told that a run starts, and judges that. It returns nil where the process is dead.
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

// judgeInstant: a tick is an instant of the schedule, due by the nodes' clocks, the latest, and no older than the grace.
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
	if late := v.p.granted.Add(behind - w.ttl).Sub(v.Tick); late > w.grace+slack { // a look lasts for a TTL at most
		w.Violation("tick %s is claimed %v late, the grace is %v", clock(v.Tick), late, w.grace)
	} else if late > 2*time.Second {
		w.Count("late")
	}
	if !v.Next.IsZero() && v.Next.Before(v.p.granted.Add(behind-slack)) {
		w.Violation("tick %s starts, and %s was due when the lease was granted", clock(v.Tick), clock(v.Next))
	}
}

// unbegun reports whether the first start of the tick may have been recorded by an earlier claim of this job, which did not
// begin the run. With AtLeastOnce, that start counts as one that did not complete.
func (v *visit) unbegun() bool {
	t := v.tick
	return v.p.starts > 1 && slices.Contains(t.asked, v.job) && len(t.when) > 0 && t.when[0].Before(v.p.granted)
}

// endedBefore reports whether the end of the tick was on record when a later run could see it. An end that was recorded only
// after its lease was lost may have come after the next replica, which had the lease by then, had looked for it.
func (t *tick) endedBefore(v *visit) bool {
	return t.ended && !(t.late && v.p.granted.Before(t.endedAt))
}

// judgeStarts: a tick is started n times at most, each start is recorded before, and completed ticks are not started again.
func (w *world) judgeStarts(v *visit) {
	t := v.tick
	if t.endedBefore(v) && w.onNodes(endKey(t.at)) {
		w.Violation("tick %s is started, and its end is on record", clock(v.Tick))
	}
	earlier := w.visits[:len(w.visits)-1] // the last is v
	if slices.ContainsFunc(earlier, func(b *visit) bool { return b.tick == t && b.job == v.job && b.completed }) {
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

// judgePace: starts of a tick are recorded at least a second apart, by the nodes' clocks as replicas know them.
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

// startKey and endKey are the keys of records.
func startKey(tick time.Time, attempt int) string {
	return core.Key("cron", "service", "job", "start", tick.Format(time.RFC3339Nano), strconv.Itoa(attempt))
}

func endKey(tick time.Time) string {
	return core.Key("cron", "service", "job", "end", tick.Format(time.RFC3339Nano))
}

// onNodes reports whether a quorum of nodes has a record, as one has whose writer was not told so.
func (w *world) onNodes(key string) bool {
	return sim.Recorded(w.nodes, w.first.KeyPrefix(), key, -1) > len(w.nodes)/2
}

// judgeOrder: ticks start in their order, and one that is owed another start goes first.
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
	if !doubt && v.p.running == 1 && v.Attempt == 1 && !v.unbegun() { // an earlier claim would have told of them
		v.p.between[len(v.p.between)-1] = between
	}
}

// judgeSuperseded: the observer is told of each tick that the last run superseded, soon after that has begun, and before it
// is told of another run.
func (w *world) judgeSuperseded(p *process) {
	run := len(p.superseded) - 1
	if run < 0 || run >= len(p.between) || p.between[run] < 0 {
		return
	}
	if told := p.superseded[run]; told != p.between[run] {
		w.Violation("run %d of %s: %d ticks are superseded, %d told", run, p.name, p.between[run], told)
	}
}

// between returns how many ticks are between two, and whether one of them may have been started.
func (w *world) between(before *tick, after time.Time) (n int, doubt bool) {
	for at := w.schedule.Next(before.at); at.Before(after); at = w.schedule.Next(at) {
		n++
		t := w.oracle.ticks[at.UnixNano()]
		doubt = doubt || t != nil && t.begun > 0
	}
	return n, doubt
}

// owes reports whether a tick is to be started again for sure, by p. A process does not start again what it has completed.
func (w *world) owes(t *tick, p *process) bool {
	if slices.ContainsFunc(w.visits, func(v *visit) bool { return v.tick == t && v.job == p.job && v.completed }) {
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

// judgePrevious: Previous is the last tick before that is known to have completed without an error.
func (w *world) judgePrevious(v *visit) {
	allowed := []time.Time{{}}
	for i := len(w.visits) - 2; i >= 0; i-- { // the last is v
		before := w.visits[i]
		if before.tick == nil {
			continue
		}
		if before.tick.forgotten || v.tick.forgotten {
			return
		}
		t := before.tick
		_, started := w.between(t, v.Tick) // if t ended late, who started that, and died, may have looked before
		right := t.ended && !t.wrong || !t.ended && slices.ContainsFunc(w.visits, func(v *visit) bool { return v.tick == t && !v.over.IsZero() && v.err == nil })
		switch {
		case t == v.tick || !t.ending || !right:
			allowed = []time.Time{before.Previous}
			w.Count("previous after failures")
		case t.ended && !(t.late && started):
			allowed = []time.Time{t.at}
			w.Count("previous")
		default:
			allowed = []time.Time{before.Previous, t.at}
		}
		if t != v.tick && before.job == v.job && before.succeeded() { // that process knows, whatever is on record
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
	knows := func(before *visit) bool { // a process knows of its own runs what is not on record, and records that with its next start
		return before.tick != nil && before.Tick.Equal(v.Previous) && before.Tick.Before(v.Tick) && before.Tick.After(allowed[0]) && before.succeeded()
	}
	if !slices.ContainsFunc(allowed, v.Previous.Equal) && !slices.ContainsFunc(w.visits, knows) {
		w.Violation("tick %s: Previous is %s, must be one of %v", clock(v.Tick), clock(v.Previous), allowed)
	}
}

// end is told that a run has ended.
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
	if v.p.job == nil || v.p.job != v.job || v.p.elector != nil && w.leads != v.p { // else it looks now
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
	if ended && !v.told && v.p.closed && v.tick != nil && v.p.Is(fmt.Sprint("host ", v.p.who)) == 0 && v.lease().Err() == nil {
		w.Violation("the context of %s has ended with its Service, and its lease lives", clock(v.Tick))
	}
	if ended && v.p.left.IsZero() {
		w.mustHaveAReason(v.p, v.over.Sub(v.began), "the context of a run ended")
		if cause := context.Cause(v.ctx); !errors.Is(cause, core.ErrLost) && !errors.Is(cause, context.Canceled) {
			w.Violation("the context of a run ended with %v", cause)
		}
	}
}

// leaves is told that Close or Remove is about to be called. A run whose start is being recorded is under way.
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

// stopped is told that the host has ended, or that gocron has removed the job: the contexts of its runs have ended.
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

// other is its function: no two runs of it overlap, and no tick has more than the two starts that it may have.
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

// otherPeriod is the period of the job of the second service.
func otherPeriod(p sim.Program) time.Duration { return max(3*time.Second, period(p)) }

// otherTakes is how long a run of that job takes at most.
const otherTakes = 4 * time.Second

// judgeSecond judges the progress of the second service: after each run, the next tick starts in time, unless something was
// wrong in between. It judges only programs whose processes live from the beginning to the end.
func (w *world) judgeSecond() {
	ends := func(s sim.Step) bool { return strings.HasPrefix(s.Do, "close") || strings.HasPrefix(s.Do, "kill") }
	if w.Is("second") == 0 || slices.ContainsFunc(w.Steps, ends) {
		return
	}
	w.mu.Lock()
	starts := append(slices.Clone(w.otherStarts), time.Now())
	w.mu.Unlock()
	last := w.Began.Add(w.tail()) // the nodes vote, and their clocks are known
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

// calm reports whether nothing was wrong anywhere between two instants.
func (w *world) calm(from, to time.Time) bool {
	w.spansMu.Lock()
	defer w.spansMu.Unlock()
	wrong := func(s span) bool { return s.from.Before(to) && s.to.After(from) }
	return !slices.ContainsFunc(w.troubles, wrong) && !slices.ContainsFunc(w.nodesIll, wrong) && !slices.ContainsFunc(w.replicasIll, wrong)
}

// looksBegin judges that a look asks for the lease of the job while no other one does.
func (w *world) looksBegin(p *process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p.taking++
	if p.taking > 1 && !p.removed {
		w.Violation("%s: %d looks ask for the lease of the job at once", p.name, p.taking)
	}
}

func (w *world) looksEnd(p *process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p.taking--
}
