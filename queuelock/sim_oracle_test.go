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

// A simOracle judges a run by the rules of the package document. It counts the cases that it excuses.
type simOracle struct {
	s     *simulation
	quiet bool // the program has no faults: no node is out of reach, and no message or lease is lost

	mu         sync.Mutex
	specs      []*simSpec
	tasks      map[string]*simTask // by queue, id and number of the spec
	done       map[string]bool     // whether a handler has succeeded, by identity
	runs       map[string]int      // by identity
	recoveries map[int]int         // retries that asynq's recoverer has counted, by number
	active     map[*simDelivery]bool
	seen       map[context.Context]*simDelivery // all deliveries that have arrived, by asynq's context
	holders    map[string]map[*simDelivery]bool // the deliveries at work, by key
	tokens     map[string]uint64                // the latest fencing token, by key
	records    map[string]*simRecord            // by identity
	rests      map[string]time.Time             // the end of the cooldown, by key
	doneTil    map[string]time.Time             // the end of a completion by an outsider, by key
	forgot     time.Time                        // when a node last lost its memory
	away       time.Time                        // the end of the latest outage of asynq's Redis, as seen by any process
	alive      []*simProcess                    // all processes that were started
	over       bool                             // no more processes are started
	failed     bool                             // a rule has been broken
}

// A simTask is a task of asynq.
type simTask struct {
	queue, id  string
	kind, body string    // its type and payload
	spec       *simSpec  // nil for a tick
	failures   int       // failures that asynq may have counted
	mayArchive bool      // asynq may archive it: a last attempt failed, or SkipRetry was returned
	notBefore  time.Time // the earliest time of the next delivery
	doubled    bool      // asynq may run two deliveries of it at once
}

// number returns the number of the task's spec. All ticks share the number -1.
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
	by   *simDelivery // nil if the completion is not confirmed
	lost bool         // too few nodes have it for a quorum to report it
}

// A simDelivery is one arrival of a task at the middleware, or an outsider's hold of a key.
type simDelivery struct {
	p               *simProcess
	who, id         string
	task            *simTask
	keys            []string
	asynq           context.Context
	ctx, work       context.Context // asynq's joined with the application's, and the handler's
	retried         int
	atLast          bool
	remembered      bool
	at, half, last  time.Time
	asked           map[string]*simAsk
	held            map[string]bool
	lostAt          map[string]time.Time
	ctxEnded        time.Time
	counted         bool // its failure is in task.failures
	ran, ended      bool // its handler has run; the handler's context had ended when it returned
	lossAt          time.Time
	lost            bool // a lease was lost before its handler returned
	abrupt          bool
	returned        error
	returnedAt      time.Time
	begunCompletion bool
	completion      error
	events          []core.EventKind
}

// A simAsk records the requests of a delivery for one key.
type simAsk struct {
	last  error
	at    time.Time // when it last asked; heard is the time of the answer
	heard time.Time
	free  int // waiting places that were free at the answer
	waits int
	place bool // it waits on a waiting place
}

// slack is how late an event may be if the rules bound its time. Requests under way end within the node timeout, and
// some are sent again.
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

// locked calls do with the mutex held.
func (o *simOracle) locked(do func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	do()
}

// wrong reports a violation, unless the delivery's process is dead.
func (o *simOracle) wrong(d *simDelivery, format string, args ...any) {
	if d.p == nil || !d.p.dead {
		o.failed = true
		o.s.Violation("%s: %s", d.who, fmt.Sprintf(format, args...))
	}
}

// arrives records the start of a delivery. It judges the retry count and the time of the delivery.
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

// delivery returns a new delivery with the facts from the context of a task.
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

// gaveUp records that asynq counts a task as failed because its context has ended. asynq may not have delivered it.
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

// contextEnds is called when asynq gives up on a delivery, or when the application ends its context.
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

// failsLocked records a failure that asynq may count. o.mu must be held.
func (o *simOracle) failsLocked(d *simDelivery) {
	if !d.counted {
		d.counted = true
		d.task.failures++
	}
	if d.atLast {
		d.task.mayArchive = true
	}
}

// asks records that a delivery asks for a key, and reports whether it waits for the key.
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

// rests returns how much of a key's cooldown is left, as the nodes reported it. It returns 0 if there is no cooldown.
func rests(err error) time.Duration {
	if op, ok := errors.AsType[*core.OpError](err); ok && op.Held == core.HeldCooldown {
		return op.RetryAfter
	}
	return 0
}

// answered records the answer to such a request, and judges how long it took.
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

// holds records a granted lease.
func (o *simOracle) holds(d *simDelivery, key string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	d.held[key] = true
	delete(d.lostAt, key)
	d.lossAt = time.Time{} // a last attempt that lost its lease starts again
}

// holdEnds records the end of a lease. Unless it was released, it was lost, taken away, or expired.
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

// ctxEnd returns when the delivery's context ended, or now if its end is not recorded yet.
func (d *simDelivery) ctxEnd() time.Time {
	if d.ctxEnded.IsZero() {
		return time.Now()
	}
	return d.ctxEnded
}

// enters records that a delivery works under a key. It judges the delivery against the other holders of the key, its
// cooldown and its last token. A caller that runs no handler must call leave at the end.
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

// completes is called before a completion is sent. It judges whether the task may be completed.
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

// released records the cooldown of a confirmed release that began at the given time.
func (o *simOracle) released(d *simDelivery, key string, at time.Time, out core.Outcome) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var cool *cooldownError
	if out.Err == nil && at.After(o.forgot) && len(d.keys) > 1 && key == d.keys[1] && errors.As(d.returned, &cool) {
		o.rests[key] = at.Add(cool.d - time.Millisecond) // nodes count in milliseconds
		o.s.Count("key rests")
	}
}
