package queuelock

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/sim"
)

// A simOracle judges by the rules of the package document. What it excuses it counts.
type simOracle struct {
	s     *simulation
	quiet bool // no fault happens: nothing is out of reach, and nothing is lost

	mu         sync.Mutex
	specs      []*simSpec
	tasks      map[string]*simTask // by queue, id and number of the spec
	done       map[string]bool     // whether a handler has succeeded, by identity
	runs       map[string]int      // by identity
	recoveries map[int]int         // retries that asynq's recoverer has counted, by number
	active     map[*simDelivery]bool
	seen       map[context.Context]*simDelivery // all that have arrived, by asynq's context
	holders    map[string]map[*simDelivery]bool // whose handlers run, by key
	tokens     map[string]uint64                // the last, by key
	records    map[string]*simRecord            // by identity
	rests      map[string]time.Time             // until when a key rests
	doneTil    map[string]time.Time             // until when a key is completed by somebody else
	forgot     time.Time                        // when a node last lost its memory
	away       time.Time                        // until when asynq's Redis is, of some process
	alive      []*simProcess                    // all that there have been
	over       bool                             // no more processes
	failed     bool                             // a rule has been broken
}

// A simTask is a task of asynq.
type simTask struct {
	queue, id  string
	kind, body string    // its type and payload
	spec       *simSpec  // nil: a tick
	failures   int       // that asynq may have counted
	mayArchive bool      // a last attempt has failed, or SkipRetry
	notBefore  time.Time // it rests
	doubled    bool      // it may be delivered twice at a time
}

// number is that of the spec; ticks have one together.
func (t *simTask) number() int {
	if t.spec == nil {
		return -1
	}
	return t.spec.number
}

func (t *simTask) remembered() bool { return t.spec == nil || t.spec.id() != byTaskID }

func (t *simTask) identity() string {
	if t.spec == nil || t.spec.id() == byID {
		return core.Key("queue", "task", t.id)
	}
	digest := sha256.Sum256(fmt.Appendf(nil, "%s/%s", core.Key(t.kind), t.body))
	return core.Key("queue", "task", t.queue, t.id, fmt.Sprintf("%x", digest[:8]))
}

// A simRecord is the completion of an identity.
type simRecord struct {
	at   time.Time
	by   *simDelivery // nil: it may be there
	lost bool         // so many nodes have forgotten it that a quorum has not heard of it
}

// A simDelivery is one arrival of a task at the middleware, or somebody else who holds a key.
type simDelivery struct {
	p               *simProcess
	who, id         string
	task            *simTask
	keys            []string
	asynq           context.Context
	ctx, work       context.Context // asynq's until the application ends it, and the handler's
	retried         int
	atLast          bool
	remembered      bool
	at, half, last  time.Time
	asked           map[string]*simAsk
	held            map[string]bool
	lostAt          map[string]time.Time
	ctxEnded        time.Time
	counted         bool // a failure of it
	ran, ended      bool // its handler, before its context or not
	lossAt          time.Time
	lost            bool // a lease was, before its handler returned
	abrupt          bool
	returned        error
	returnedAt      time.Time
	begunCompletion bool
	completion      error
	events          []core.EventKind
}

// A simAsk is what a delivery has done to get a key.
type simAsk struct {
	last  error
	at    time.Time // when it asked last, and when it was answered
	heard time.Time
	free  int // places, then
	waits int
	place bool // it waits in place
}

// slack is how late what is bounded by the rules may be: requests that are under way end within the node timeout, and some
// are sent again.
const slack = 2500 * time.Millisecond

func (o *simOracle) begin(s *simulation) {
	o.s = s
	o.tasks, o.active, o.seen = map[string]*simTask{}, map[*simDelivery]bool{}, map[context.Context]*simDelivery{}
	o.done, o.runs, o.recoveries = map[string]bool{}, map[string]int{}, map[int]int{}
	o.holders, o.tokens, o.records = map[string]map[*simDelivery]bool{}, map[string]uint64{}, map[string]*simRecord{}
	o.rests, o.doneTil = map[string]time.Time{}, map[string]time.Time{}
	o.quiet = s.Is("delay")+s.Is("late")+s.Is("lost")+s.Is("asynq lost") == 0 &&
		!slices.ContainsFunc(s.Steps, func(step sim.Step) bool { return !slices.Contains(simTasks, step.Do) })
	if o.quiet {
		s.Count("quiet")
	}
}

// locked does something with the mutex held.
func (o *simOracle) locked(do func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	do()
}

// wrong reports a violation.
func (o *simOracle) wrong(d *simDelivery, format string, args ...any) {
	if d.p == nil || !d.p.dead {
		o.failed = true
		o.s.Violation("%s: %s", d.who, fmt.Sprintf(format, args...))
	}
}

// arrives begins a delivery.
func (o *simOracle) arrives(p *simProcess, theirs, ctx context.Context, t *asynq.Task) *simDelivery {
	o.mu.Lock()
	defer o.mu.Unlock()
	d := o.delivery(p, ctx, t)
	d.asynq = theirs
	o.active[d], o.seen[theirs] = true, d
	at, _ := ctx.Deadline()
	left := time.Until(at)
	d.half, d.last = at.Add(-left/2), at.Add(-min(left/10, time.Second))
	spec := d.task.spec
	d.remembered = d.task.remembered()
	d.keys = []string{d.task.identity()}
	if o.s.Is("keys") > 0 && (spec == nil || spec.Do != "unfit") {
		n := 0
		if spec != nil {
			n = spec.Who
		}
		d.keys = append(d.keys, simKey(n))
	}
	o.s.Tracef("%s: %s arrives, %v left", d.who, t.Type(), left)
	if fair := d.task.failures + o.recoveries[d.task.number()]; d.retried > fair {
		o.wrong(d, "%d retries counted, and only %d failures", d.retried, fair)
	}
	if d.at.Before(d.task.notBefore) && !d.task.doubled {
		o.wrong(d, "delivered %v before its rest is over", d.task.notBefore.Sub(d.at))
	}
	context.AfterFunc(ctx, func() { o.contextEnds(d) })
	return d
}

// delivery returns what the context of a task says.
func (o *simOracle) delivery(p *simProcess, ctx context.Context, t *asynq.Task) *simDelivery {
	d := &simDelivery{p: p, at: time.Now(), ctx: ctx, asked: map[string]*simAsk{}}
	d.held, d.lostAt = map[string]bool{}, map[string]time.Time{}
	d.id, _ = asynq.GetTaskID(ctx)
	queue, _ := asynq.GetQueueName(ctx)
	d.task = o.exists(d.id, queue, t)
	d.retried, _ = asynq.GetRetryCount(ctx)
	most, _ := asynq.GetMaxRetry(ctx)
	d.atLast = d.retried >= most
	d.who = fmt.Sprintf("%s on %d, retry %d/%d", d.id, p.place, d.retried, most)
	return d
}

// gaveUp hears that asynq takes a task for failed because its context has ended, maybe without having delivered it.
func (o *simOracle) gaveUp(p *simProcess, ctx context.Context, t *asynq.Task) {
	o.mu.Lock()
	defer o.mu.Unlock()
	d := o.seen[ctx]
	if d == nil {
		d = o.delivery(p, ctx, t)
		o.s.Count("fails undelivered")
	}
	o.s.Tracef("%s: asynq gives up, %v", d.who, ctx.Err())
	o.failsLocked(d)
}

// contextEnds hears that asynq has given up on a delivery, or that the application has ended its context.
func (o *simOracle) contextEnds(d *simDelivery) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.active[d] {
		return
	}
	d.ctxEnded = time.Now()
	o.s.Tracef("%s: context ends, %v", d.who, d.ctx.Err())
	if d.ctx.Err() == context.DeadlineExceeded && !d.ran && !d.atLast && d.last.Sub(d.at) > 8*time.Second {
		o.wrong(d, "waited until its deadline, which counts a retry")
	}
	if o.quiet && d.ctx.Err() == context.DeadlineExceeded && !d.ran && d.atLast && len(d.asked) > 0 {
		o.wrong(d, "waited until its deadline, on its last attempt")
	}
	switch {
	case d.ran || len(d.asked) == 0:
	case d.asynq.Err() != nil:
		o.s.Count("taken back while waiting")
	case d.atLast:
		o.s.Count("stays in its worker")
	}
}

// failsLocked books a failure that asynq may count.
func (o *simOracle) failsLocked(d *simDelivery) {
	if !d.counted {
		d.counted = true
		d.task.failures++
	}
	if d.atLast {
		d.task.mayArchive = true
	}
}

// asks hears that a delivery asks for a key, and reports whether it waits.
func (o *simOracle) asks(d *simDelivery, op core.Op) (waits bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	a := d.asked[op.Key]
	if a == nil {
		a = &simAsk{}
		d.asked[op.Key] = a
	}
	i := slices.Index(d.keys, op.Key)
	if i < 0 {
		o.wrong(d, "asks for %q, which is not its key", op.Key)
	}
	if i == 1 && !d.held[d.keys[0]] && d.lostAt[d.keys[0]].IsZero() {
		o.wrong(d, "asks for its key without the lease of its identity")
	}
	a.at = time.Now()
	if op.Try {
		if a.last != nil && !d.atLast {
			o.wrong(d, "tries twice")
		}
		return false
	}
	a.waits++
	switch {
	case d.atLast:
		o.s.Count("last attempt waits")
	case a.waits > 1:
		o.wrong(d, "waits twice")
	case rests(a.last) > time.Second:
		o.wrong(d, "waits for a key that rests for %v", rests(a.last))
	case errors.Is(a.last, core.ErrHeld):
		o.s.Count("waits in place")
		a.place = true
		d.p.inPlace++
		d.p.moves = append(d.p.moves, time.Now())
		if d.p.inPlace > d.p.places {
			o.wrong(d, "%d wait in place, on %d places", d.p.inPlace, d.p.places)
		}
	case errors.Is(a.last, core.ErrUnavailable):
		o.s.Count("waits for locks")
	default:
		o.wrong(d, "waits after %v", a.last)
	}
	return true
}

// rests is for how long the nodes say that a key rests.
func rests(err error) time.Duration {
	if op, ok := errors.AsType[*core.OpError](err); ok && op.Held == core.HeldCooldown {
		return op.RetryAfter
	}
	return 0
}

// answered hears what became of that.
func (o *simOracle) answered(d *simDelivery, op core.Op, out core.Outcome) {
	o.mu.Lock()
	defer o.mu.Unlock()
	a, now := d.asked[op.Key], time.Now()
	was := a.last
	a.last, a.heard, a.free = out.Err, now, d.p.places-d.p.inPlace
	o.s.Tracef("%s: %s %v", d.who, op.Key, out.Err)
	late := func(until time.Time, what string) {
		if over := now.Sub(until); over > slack && now.Sub(a.at) > slack {
			o.wrong(d, "waited for %s for %v, %v too long", what, now.Sub(a.at), over)
		}
	}
	switch {
	case op.Try:
	case !d.ctxEnded.IsZero() && now.Sub(d.ctxEnded) > slack:
		o.wrong(d, "waited for %v after asynq had taken it back", now.Sub(d.ctxEnded))
	case d.atLast:
		late(d.last, "a lease, on its last attempt")
	case errors.Is(was, core.ErrHeld):
		d.p.inPlace--
		d.p.moves = append(d.p.moves, now)
		late(d.half, "a held key")
	default:
		late(d.at.Add(min(5*time.Second, d.half.Sub(d.at))), "locks")
	}
}

// holds hears of a lease.
func (o *simOracle) holds(d *simDelivery, key string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	d.held[key] = true
	delete(d.lostAt, key)
	d.lossAt = time.Time{} // before that, a last attempt begins anew
}

// holdEnds hears that it has ended: it was lost, taken away or run out, unless it was released.
func (o *simOracle) holdEnds(d *simDelivery, key string, out core.Outcome) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(d.held, key)
	if errors.Is(out.Err, core.ErrReleased) {
		return
	}
	now := time.Now()
	d.lostAt[key] = now
	if errors.Is(out.Err, core.ErrLost) {
		d.lossAt = now
	}
	o.s.Tracef("%s: lease on %s ends: %v", d.who, key, out.Err)
	switch {
	case !errors.Is(out.Err, core.ErrLost) && d.ran && d.returnedAt.IsZero() && !d.p.closed && now.Sub(d.ctxEnd()) < d.p.grace:
		o.wrong(d, "the lease on %s ended within the grace: %v", key, out.Err)
	case !d.ran:
		o.s.Count("lost while waiting")
	default:
		o.s.Count("lease lost")
	}
	if o.quiet && now.Sub(d.ctxEnd()) < d.p.grace {
		o.wrong(d, "the lease on %s was lost without a reason: %v", key, out.Err)
	}
}

// ctxEnd is when asynq's context ended: now, if it has not been told yet.
func (d *simDelivery) ctxEnd() time.Time {
	if d.ctxEnded.IsZero() {
		return time.Now()
	}
	return d.ctxEnded
}

// enters judges who holds a key beside whom. leave is for those who run no handler.
func (o *simOracle) enters(d *simDelivery, key string, token uint64) (leave func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.holders[key] == nil {
		o.holders[key] = map[*simDelivery]bool{}
	}
	for other := range o.holders[key] {
		switch {
		case other.p != nil && (other.p.dead || other.p.closed):
		case !other.lostAt[key].IsZero() && other.work.Err() != nil:
			o.s.Count("overlap after a loss")
		case other.work.Err() == nil && d.work.Err() == nil:
			o.wrong(d, "runs beside %s, for %s", other.who, key)
		case other.p != nil && d.work.Err() == nil:
			o.wrong(d, "runs beside %s, for %s, whose lease has not run out", other.who, key)
		}
	}
	if until := o.rests[key]; time.Now().Before(until) {
		o.wrong(d, "holds %s, which rests for %v", key, time.Until(until))
	}
	if token > 0 && token <= o.tokens[key] {
		o.wrong(d, "has token %d for %s, after %d", token, key, o.tokens[key])
	}
	o.tokens[key] = max(o.tokens[key], token)
	o.holders[key][d] = true
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.holders[key], d)
	}
}

// completes hears that a completion is to be recorded.
func (o *simOracle) completes(d *simDelivery) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !d.remembered || d.returnedAt.IsZero() || d.returned != nil && !errors.Is(d.returned, asynq.RevokeTask) {
		o.wrong(d, "is recorded as completed: %v", d.returned)
	}
	d.begunCompletion = true
	if o.records[d.keys[0]] == nil {
		o.records[d.keys[0]] = &simRecord{}
	}
}

func (o *simOracle) completed(d *simDelivery, out core.Outcome) {
	o.mu.Lock()
	defer o.mu.Unlock()
	d.completion = out.Err
	o.s.Tracef("%s: completion: %v", d.who, out.Err)
	if out.Err != nil {
		return
	}
	o.s.Count("record")
	rec := o.records[d.keys[0]]
	if rec.by != nil && rec.by != d && !rec.lost && time.Since(rec.at) < d.p.retention-slack {
		o.wrong(d, "its completion is recorded again, %v after that of %s", time.Since(rec.at), rec.by.who)
	}
	o.records[d.keys[0]] = &simRecord{at: time.Now(), by: d}
}

// released hears of a release that began at some time: the key may rest from then on.
func (o *simOracle) released(d *simDelivery, key string, at time.Time, out core.Outcome) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var cool *cooldownError
	if out.Err == nil && at.After(o.forgot) && len(d.keys) > 1 && key == d.keys[1] && errors.As(d.returned, &cool) {
		o.rests[key] = at.Add(cool.d - time.Millisecond) // nodes count in milliseconds
		o.s.Count("key rests")
	}
}
