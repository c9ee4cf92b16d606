package httplock

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/sim"
)

// settled is the longest time that a response waits for its release.
const settled = 100 * time.Millisecond

// instant is a span in which events may happen in any order.
const instant = 2 * time.Millisecond

// A wait is the wait of a request for a key in a replica.
type wait struct {
	*request
	ctx   context.Context
	op    core.Op
	line  string
	since time.Time
}

// arrives is called when a request asks for a key. It checks that the queue is bounded, and that repetitions do not
// wait.
func (s *simulation) arrives(ctx context.Context, q *request, op core.Op) *wait {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &wait{q, ctx, op, q.replica.name + op.Key, time.Now()}
	s.waiting[w.line] = append(s.waiting[w.line], w)
	switch n, once := len(s.waiting[w.line]), strings.Contains(op.Key, "http/idempotent"); {
	case once && !op.Try:
		s.Violation("%v: a repetition waits", q)
	case !once && n > s.maxWaiters():
		s.Violation("%v: %d wait for its key", q, n)
	}
	return w
}

func (s *simulation) maxWaiters() int {
	if n := s.Is("waiters"); n > 0 {
		return n
	}
	return 64
}

// served is called when a wait has ended. It checks that a replica serves requests in the order in which they came.
func (s *simulation) served(w *wait, err error) {
	s.mu.Lock()
	line := s.waiting[w.line]
	line = slices.DeleteFunc(line, func(other *wait) bool { return other == w })
	s.waiting[w.line] = line
	line = slices.Clone(line)
	s.mu.Unlock()

	if err != nil || w.op.Try {
		return
	}
	for _, other := range line {
		if !other.op.Try && other.since.Add(instant).Before(w.since) && other.ctx.Err() == nil && time.Since(other.since) < other.patience() {
			s.Violation("%v was overtaken by %v", other.request, w.request)
		}
	}
	if len(line) > 0 {
		s.Count("served in order")
	}
}

// nodeTimeout returns the documented node timeout: a tenth of the TTL, and at most 1 s.
func (s *simulation) nodeTimeout() time.Duration { return min(s.ttl()/10, time.Second) }

// whole returns the time at which the server has the whole request.
func (q *request) whole() time.Time { return q.sent.Add(q.stall()) }

// patience returns how long the request waits for its key.
func (q *request) patience() time.Duration {
	d := q.ms("wait")
	for _, limit := range []time.Duration{time.Duration(q.With["deadline"]) * time.Millisecond, q.ms("write timeout")} {
		if limit > 0 {
			d = min(d, max(0, limit-q.stall())*3/4)
		}
	}
	return d
}

// invalid returns the kinds of refusals that the request must get because of its own faults.
func (q *request) invalid() (kinds []core.EventKind) {
	if q.safe() {
		return nil
	}
	given := q.key()
	if q.onceOn() && (q.With["malformed"] > 0 && given != "" || given == "" && q.Is("once") == 2) {
		kinds = append(kinds, EventIdempotencyKey)
	}
	locked := q.Is("key") != noKey || q.onceOn() && (given != "" || q.Is("once") == 2)
	if q.lacksTenant() && q.Is("tenants") > 0 && locked || (q.lacksKey() || q.gone() && q.identity == "") && q.Is("key") > byParam && q.Is("key") != noKey {
		kinds = append(kinds, EventKeyMissing)
	}
	if len(q.body) > smallBody && q.Is("small") > 0 && locked {
		kinds = append(kinds, EventBodyTooLarge)
	}
	return kinds
}

// starts is called when a handler begins. It checks that the request may run, that it begins in time and only once,
// that it has its own leases, and that it runs alone.
func (s *simulation) starts(q *request, w http.ResponseWriter, r *http.Request) *run {
	now := time.Now()
	c := &run{request: q, ctx: r.Context(), w: w, began: now, status: 200}
	s.mu.Lock()
	s.runs++
	c.id = s.runs
	again := q.run != nil
	q.run = c
	s.mu.Unlock()
	s.Tracef("%v: run %d", q, c.id)

	lease, ok := core.FromContext(c.ctx)
	info, _ := FromContext(c.ctx)
	if q.free() {
		if ok {
			s.Violation("%v: runs under a lease", q)
		}
		s.Count("passed")
		return c
	}

	q.holds(c.ctx)
	leases := q.held()
	left, drained := s.when(&q.left), s.when(&q.replica.drained)
	switch limit := q.pre(); {
	case again:
		s.Violation("%v: a second handler", q)
	case len(q.invalid()) > 0:
		s.Violation("%v: runs, and is to be refused: %v", q, q.invalid())
	case q.gone():
		s.Violation("%v: runs, and nothing makes its key", q)
	case q.nested():
		s.Violation("%v: runs within two Locks", q)
	case !ok || len(leases) != q.locks():
		s.Violation("%v: runs under %d leases", q, len(leases))
		return c
	case q.struck && q.at(granted) && blows[q.With["blow"]] == "drain":
		s.Violation("%v: its handler begins, and its replica was drained before", q)
	case now.Sub(q.whole()) > limit:
		s.Violation("%v: its handler begins after %v, which may be %v", q, now.Sub(q.whole()), limit)
	case !left.IsZero() && now.Sub(left) > instant+q.delay():
		s.Violation("%v: its handler begins %v after the client left", q, now.Sub(left))
	case !drained.IsZero() && now.Sub(drained) > instant+q.delay():
		s.Violation("%v: its handler begins %v after the drain", q, now.Sub(drained))
	}

	c.alone(lease, info)
	for _, lease := range leases {
		context.AfterFunc(lease.Context(), func() { s.begin(&c.unheard) })
	}
	return c
}

// locks returns the number of leases that the handler must run under.
func (q *request) locks() (n int) {
	for _, key := range []string{q.identity, q.resource} {
		if key != "" {
			n++
		}
	}
	return n
}

// innermost returns the resource or identity that the last of these leases is for.
func (q *request) innermost() string { return cmp.Or(q.resource, q.identity) }

// pre returns how long it may take until the handler begins.
func (q *request) pre() time.Duration {
	d := q.patience() + instant + q.delay()

	request := q.nodeTimeout() // for an acquisition that does not wait
	if q.anyTrouble() {
		request *= 5 // an acquisition then takes several requests
	}
	if q.Is("wait") == 0 {
		d += request
	}
	if q.identity != "" {
		d += request
	}
	return d
}

// alone checks that handlers of a resource run one at a time, each with a greater token, and that none runs for an
// identity whose response is recorded.
func (c *run) alone(lease *core.Lease, info Run) {
	who := fmt.Sprintf("run %d of %v", c.id, c.request)
	resource := c.innermost()
	// A run counts until its context ends, even if its handler returns earlier.
	context.AfterFunc(c.ctx, c.keys.Enter(c.Trial, c.ctx, resource, who))
	context.AfterFunc(lease.Context(), c.simulation.leases.Enter(c.Trial, lease.Context(), resource, who))
	if c.identity != "" {
		context.AfterFunc(c.ctx, c.once.Enter(c.Trial, c.ctx, c.identity, who))
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	if last := c.tokens[resource]; info.FencingToken <= last || info.FencingToken != lease.FencingToken() {
		c.Violation("%s: token %d of %d after %d", who, info.FencingToken, lease.FencingToken(), last)
	}
	c.tokens[resource] = info.FencingToken
	c.sameName("resource", resource, lease.Key())
	if (info.Identity == "") != (c.identity == "") {
		c.Violation("%s: identity %q", who, info.Identity)
	}
	if c.identity == "" {
		return
	}

	c.sameName("identity", c.identity, info.Identity)
	id := c.identityOf(c.request)
	if id.valid(time.Now()) {
		c.Violation("%s: runs again after run %d was recorded", who, id.recorded.id)
	}
	for _, before := range id.runs {
		if before.asksAgain() && !before.ended.IsZero() {
			c.Count("ran again after a response that invites a retry")
		}
	}
	id.runs = append(id.runs, c)
}

// sameName checks that a resource or identity always has the same key, and that no two have the same. s.mu must be
// held.
func (s *simulation) sameName(kind, name, key string) {
	for _, pair := range [][2]string{{kind + name, key}, {"of " + kind + key, name}} {
		if was, ok := s.named[pair[0]]; ok && was != pair[1] {
			s.Violation("%s: %q, and before %q", pair[0], pair[1], was)
		}
		s.named[pair[0]] = pair[1]
	}
}

// toldWhy checks that the context of a handler has ended for a documented reason.
func (c *run) toldWhy() {
	at := time.Now()
	time.Sleep(instant)
	why := ""
	lost := c.anyLost() != nil
	switch {
	case c.With["deadline"] > 0 && at.Sub(c.when(&c.came)) >= time.Duration(c.With["deadline"])*time.Millisecond:
		why = "its deadline"
	case lost:
		why = "a loss"
		if !errors.Is(context.Cause(c.ctx), core.ErrLost) {
			c.Violation("%v: the cause of a loss is %v", c.request, context.Cause(c.ctx))
		}
	case c.identity == "" && c.cutOff(at) != "":
		why = c.cutOff(at)
	default:
		c.Violation("%v: its context ended: %v", c.request, context.Cause(c.ctx))
	}
	c.Count("told of " + why)
}

// returns is called when a handler returns. It checks that the context has ended if a lease, the client or the time of
// the request was gone.
func (s *simulation) returns(c *run) {
	p := recover()
	now := time.Now()
	lost := c.anyLost() != nil
	s.mu.Lock()
	c.lost = lost
	c.panicked, c.ended, c.header = p != nil, now, c.w.Header().Clone()
	if c.panicked && c.host.inside && c.With["panic"] == 1 {
		c.status = http.StatusInternalServerError
	}
	unheard := c.unheard
	if c.identity == "" && !c.left.IsZero() && (unheard.IsZero() || c.left.Before(unheard)) {
		unheard = c.left
	}
	if ms := c.With["deadline"]; ms > 0 && unheard.IsZero() {
		unheard = c.came.Add(time.Duration(ms) * time.Millisecond)
	}

	s.mu.Unlock()
	if lost {
		s.begin(&c.request.lost)
	}
	if !unheard.IsZero() && now.Sub(unheard) > instant+c.delay() && c.ctx.Err() == nil {
		s.Violation("%v: its context has not ended since %v", c.request, now.Sub(unheard))
	}
	if p != nil {
		panic(p)
	}
}

// An identity is shared by the requests that count as one request because of their Idempotency-Key.
type identity struct {
	runs      []*run
	proposed  []*run    // the runs whose responses were to be recorded
	recorded  *run      // the run whose response is recorded
	since     time.Time // when it was recorded
	retention time.Duration
	key       string
}

// valid reports whether the record must still be there at a time.
func (id *identity) valid(at time.Time) bool {
	return id.recorded != nil && at.Sub(id.since) < id.retention-time.Second
}

// identityOf returns the identity of a request. s.mu must be held.
func (s *simulation) identityOf(q *request) *identity {
	id := s.identities[q.identity]
	if id == nil {
		id = &identity{retention: 24 * time.Hour}
		if n := s.Is("retention"); n > 0 {
			id.retention = time.Duration(n) * time.Second
		}
		s.identities[q.identity] = id
	}
	return id
}

// asksAgain reports whether the response invites a retry and so is not recorded. A handler that calls Record prevents
// that.
func (c *run) asksAgain() bool {
	invites := slices.Contains([]int{401, 403, 407, 408, 423, 425, 429, 499, 500, 503, 507}, c.status) || c.status >= 400 && c.With["again"] > 0
	return (invites || c.short()) && c.With["record"] == 0
}

// short reports whether the handler has written less than its Content-Length. A response that is too large does not
// count: Write has not taken all of it.
func (c *run) short() bool {
	isWholeTooLarge := c.tooLarge() && c.With["length"] == 1
	return c.announced > len(c.written) && !isWholeTooLarge
}

// omitted reports whether the response is recorded without its body.
func (c *run) omitted() bool {
	// Panic 1 comes before the handler has written anything.
	large := len(c.written) > maxRecord || c.tooLarge() && c.status != 204 && c.With["panic"] != 1
	return large || c.short() || c.past() || c.panicked && !c.host.inside
}

// proposes is called when a response may be on record from now on. It checks that it is the outcome of a handler.
func (q *request) proposes(op core.Op) {
	q.mu.Lock()
	defer q.mu.Unlock()
	c := q.run
	if c != nil && !q.refuted.IsZero() && q.refuted.Before(c.ended.Add(settled-instant)) {
		q.Violation("%v: something is recorded, and its release has found a loss", q)
	}
	if c == nil || c.lost || c.panicked && !q.host.inside && c.With["record"] == 0 || c.asksAgain() || q.past() && c.With["record"] == 0 || c.ended.IsZero() {
		q.Violation("%v: something is recorded that is no outcome", q)
		return
	}

	id := q.identityOf(q)
	id.key, q.offered = op.Key, time.Now()
	if !slices.Contains(id.proposed, c) {
		id.proposed = append(id.proposed, c)
	}
}

// recorded is called when the recording has ended. It checks that at most one outcome of an identity is recorded.
func (q *request) recorded(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err != nil {
		return
	}
	id := q.identityOf(q)
	if id.valid(time.Now()) && id.recorded != q.run {
		q.Violation("%v: recorded after run %d", q, id.recorded.id)
	}
	if q.done.IsZero() {
		q.Tracef("%v: recorded", q)
		q.Count("recorded")
		q.done = time.Now()
	}
	id.recorded, id.since = q.run, time.Now()
	if !q.emptied.Before(q.offered) {
		q.forget(id)
	}
}

// forgot is called when a node has lost its memory. Records that fewer than a quorum of nodes still have do not count
// any more.
func (s *simulation) forgot() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.emptied = time.Now()
	for _, id := range s.identities {
		s.forget(id)
	}
}

func (s *simulation) forget(id *identity) {
	if id.recorded != nil && sim.Recorded(s.nodes, s.operator.KeyPrefix(), id.key, -1) < len(s.nodes)/2+1 {
		id.recorded = nil
		s.Count("excused: record forgotten")
	}
}

// repeatable returns the requests whose responses are on record for another minute.
func (s *simulation) repeatable() (all []*request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.requests {
		if q.identity != "" && q.run != nil && s.identityOf(q).recorded == q.run && s.identityOf(q).valid(time.Now().Add(time.Minute)) {
			all = append(all, q)
		}
	}
	return all
}

// followed checks that each record that was open has been made, unless a trouble lasted for more than 20 s after that.
func (s *simulation) followed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.requests {
		open := q.open
		if open.IsZero() || !q.done.IsZero() || !q.refuted.IsZero() || !q.replica.drained.IsZero() {
			continue
		}
		if !slices.ContainsFunc(s.troubles, func(t trouble) bool { return t.to.After(open.Add(20 * time.Second)) }) {
			s.Violation("%v: its record did not follow", q)
		}
		s.Count("record given up")
	}
}

// closed is called after Close of a replica. It checks that Close has waited for handlers, leases, releases and
// records. late says that Close had too little time.
func (s *simulation) closed(p *replica, err error, late bool) {
	if err != nil && !late {
		s.Violation("closing replica %s: %v", p.name, err)
	}
	if err != nil {
		s.Count("close in vain")
		return
	}

	s.Count("closed")
	s.mu.Lock()
	all := slices.Clone(s.requests)
	s.mu.Unlock()
	for _, q := range all {
		if q.replica != p {
			continue
		}
		if q := q.seen(); q.run != nil && !q.free() && q.run.ended.IsZero() {
			s.Violation("%v: replica %s is closed, and its handler runs", q, p.name)
		}
		for _, lease := range q.held() {
			if lease.Context().Err() == nil {
				s.Violation("%v: replica %s is closed, and it holds %q", q, p.name, lease.Key())
			}
		}
		if q := q.seen(); q.ending > 0 {
			s.Violation("%v: replica %s is closed, and %d releases and records are under way", q, p.name, q.ending)
		}
	}
}

// documented has the documented status of each refusal, and whether another try may succeed.
var documented = map[core.EventKind]struct {
	status int
	again  bool
}{
	EventBusy: {409, true}, EventDone: {409, false}, EventQueueFull: {429, true}, EventOverloaded: {503, true}, EventDraining: {503, true},
	EventUnavailable: {503, true}, EventGone: {503, true}, EventLost: {503, false}, EventKeyMissing: {400, false},
	EventBodyBroken: {400, true}, EventBodyTooLarge: {413, false}, EventAnswerTooLarge: {500, false},
	EventIdempotencyKey: {400, false}, EventIdempotencyInFlight: {409, true}, EventIdempotencyMismatch: {422, false},
	EventIdempotencyOmitted: {410, false},
}

// judge checks that the client got the right response in time.
func (q *request) judge(got reply) {
	now := time.Now()
	q.Tracef("%v: %d %v after %v: %.60q %v", q, got.status, got.header["X-Run"], now.Sub(q.sent), got.body, got.err)
	switch wrong := slices.Contains(q.events, EventMisconfigured); {
	case wrong && q.nested():
		if got.whole() {
			q.Violation("%v: %d within two Locks", q, got.status)
		}
		q.Count("two Locks")
		return
	case q.past():
		q.writtenPast(got, wrong, now)
		return
	case wrong:
		q.Violation("%v: nothing is wrong with the route", q)
	}
	if q.free() {
		if q.run == nil && q.mayBreak(now) == "" {
			q.Violation("%v: does not pass", q)
		}
		return
	}

	q.inTime(now)
	if c := q.run; c != nil && got.err == nil && q.streams() && len(c.written) > streamThreshold && got.header.Get("X-Run") == "" {
		q.Violation("%v: %d in place of a stream that has begun", q, got.status)
	}

	kind := core.EventKind(got.header.Get("X-Kind"))
	problem := got.header.Get("Content-Type") == "application/problem+json"
	if problem && got.err == nil {
		kind = got.kind(q.T)
	}

	switch {
	case got.err != nil:
		if q.mayBreak(now) == "" {
			q.Violation("%v: %v, for no reason", q, got.err)
		}
		q.Count("broken: " + q.mayBreak(now))
		if q.mayBreak(now) == "lost stream" && q.host.plain && !q.over.IsZero() && q.aborted.IsZero() {
			q.Violation("%v: who is further out is not told", q)
		}
	case kind != "":
		q.refused(kind, got, problem)
	case got.header.Get("Idempotent-Replayed") != "":
		q.replayed(got)
	case got.header.Get("X-Run") != "":
		q.answered(got)
	case strings.HasSuffix(q.host.name, "TimeoutHandler") && got.status == 503 && (q.With["deadline"] > 0 || q.mayBreak(now) != ""):
		q.Count("timeout handler")
	case q.run == nil || !q.run.panicked || q.host.plain || got.status != 500 && !swallowed(q.host), q.run.lost && !q.streams():
		q.Violation("%v: %d %.60q is nobody's answer", q, got.status, got.body)
	}

	if q.With["last"] > 0 && !(got.whole() || q.identity != "" && (got.header.Get("Idempotent-Replayed") != "" || kind == EventIdempotencyOmitted)) {
		q.Violation("%v: all is well, and it gets %d %.60q %v", q, got.status, got.body, got.err)
	}
}

// writtenPast checks that the client of a handler that has sent a success past its Lock gets no success.
func (q *request) writtenPast(got reply, reported bool, now time.Time) {
	switch {
	case got.err == nil && got.status < 400:
		q.Violation("%v: a clean %d, and its handler has written past the Lock", q, got.status)
	case !reported && !q.run.ended.IsZero() && q.mayBreak(now) == "" && got.status != 503:
		q.Violation("%v: its handler has written past the Lock, and that is not reported", q)
	}
	q.Count("written past")
}

// inTime checks that a request is answered within the documented time.
func (q *request) inTime(now time.Time) {
	took, limit := now.Sub(q.whole()), q.pre()+2*settled
	if q.run != nil && !q.run.ended.IsZero() {
		took, limit = now.Sub(q.run.ended), settled+instant+q.slow
		if q.identity != "" {
			limit += q.nodeTimeout()
		}
	} else if q.run != nil { // the handler goes on without its client
		return
	}
	if took > limit {
		q.Violation("%v: answered after %v, which may be %v", q, took, limit)
	}
}

// streams reports whether the response is streamed.
func (q *request) streams() bool {
	isAwaited := !slices.Contains([]int{204, 205, 303}, statuses[q.With["status"]]) // no client waits for the end of these
	return q.identity == "" && (q.With["protocol"]+1)%3 > 0 && !q.host.hides && isAwaited && (q.With["flush"] > 0 || q.With["events"] > 0 && q.With["length"] == 0 || q.With["kilobytes"] > streamThreshold>>10)
}

// cutOff returns the reason for which the connection of the request has ended, other than its handler, or "".
func (q *request) cutOff(now time.Time) string {
	switch {
	case !q.when(&q.left).IsZero():
		return "its client left"
	case !q.when(&q.replica.over).IsZero(), !q.when(&q.replica.drained).IsZero() && q.sent.Sub(q.when(&q.replica.drained)).Abs() <= instant:
		return "its replica died" // or net/http has closed a connection that it has just accepted
	case q.ms("write timeout") > 0 && now.Sub(q.sent) >= q.ms("write timeout"):
		return "write timeout"
	case q.ms("read timeout") > 0 && q.stall() >= q.ms("read timeout"):
		return "read timeout"
	}
	return ""
}

// mayBreak returns the reason for which the connection of the request may break, or "".
func (q *request) mayBreak(now time.Time) string {
	c := q.run
	if why := q.cutOff(now); why != "" || c == nil {
		return why
	}
	switch {
	case c.panicked && !q.host.inside && (q.host.plain || q.streams()):
		return "panic"
	case !q.when(&q.lost).IsZero() && q.streams():
		return "lost stream"
	case c.panicked && !q.when(&q.lost).IsZero() && q.host.plain:
		return "lost and panicked"
	case q.With["length"] == 2 && c.status != 204, c.panicked && q.With["length"] > 0:
		return "short"
	}
	return ""
}

// refused checks that a refusal is as documented, and has a cause.
func (q *request) refused(kind core.EventKind, got reply, problem bool) {
	want, ok := documented[kind]
	status := want.status
	if q.Is("reply") > 0 && kind == EventBusy {
		status, problem = http.StatusLocked, true
	}

	after := got.header.Get("Retry-After")
	counted := 0
	for _, k := range q.events {
		if k != EventRecordOpen {
			counted++
		}
	}
	seconds, _ := strconv.Atoi(after)
	undone := kind == EventLost && q.run == nil // the lease was lost while the request waited
	if undone {
		q.Count("lost while waiting")
	}
	want.again = want.again || undone

	switch {
	case undone && !strings.Contains(got.body, "Nothing was done"):
		q.Violation("%v: refused with %q, and its handler has not run", q, got.body)
	case undone && q.Is("reply") == 0 && after == "":
		q.Violation("%v: nothing was done, and it is not told to try again", q)
	case !ok || got.status != status || !problem || (after != "") != want.again || got.header.Get("X-Run") != "":
		q.Violation("%v: %s is refused with %d %v %q", q, kind, got.status, got.header, got.body)
	case !slices.Contains(q.events, kind) || counted != 1:
		q.Violation("%v: refused as %s, and counted as %v", q, kind, q.events)
	case seconds > int(q.ttl()/time.Second)+1, after != "" && seconds < 1:
		q.Violation("%v: Retry-After %s", q, after)
	case !q.cause(kind, got):
		q.Violation("%v: refused as %s for no reason", q, kind)
	}

	if q.run != nil && kind != EventLost && kind != EventAnswerTooLarge {
		q.Violation("%v: refused as %s, and its handler ran", q, kind)
	}
}

// answered checks that a response is whole and comes from the request's own run, that the run lost no lease, and that
// the response was recorded first.
func (q *request) answered(got reply) {
	c := q.run
	if c == nil || got.header.Get("X-Run") != strconv.Itoa(c.id) {
		q.Violation("%v: gets the answer of run %s", q, got.header.Get("X-Run"))
		return
	}
	body := c.written
	if got.status == 204 {
		body = nil
	}
	switch {
	case got.status != c.status || !bytes.Equal([]byte(got.body), body):
		q.Violation("%v: %d with %d bytes, and the handler wrote %d with %d", q, got.status, len(got.body), c.status, len(body))
	case c.lost || !q.when(&q.refuted).IsZero() && q.refuted.Before(c.ended.Add(settled)):
		q.Violation("%v: a whole answer, and its lease was lost", q)
	case q.streams() && !c.flushed.IsZero() && got.began.Sub(c.flushed) > instant:
		q.Violation("%v: a stream that goes out %v late", q, got.began.Sub(c.flushed))
	case !q.streams() && got.began.Before(c.ended):
		q.Violation("%v: sent before the handler has returned", q)
	case c.panicked && !q.host.inside:
		q.Violation("%v: a whole answer of a panic", q)
	case c.announced > len(c.written) && !q.host.hides:
		q.Violation("%v: a whole answer of %d bytes, and its handler announced %d", q, len(c.written), c.announced)
	case q.identity != "" && !c.asksAgain() && q.when(&q.done).IsZero() && !slices.Contains(q.events, EventRecordOpen):
		q.Violation("%v: answered before it was recorded", q)
	}

	q.Count("answered " + got.proto)
	if q.streams() && q.With["events"] > 0 {
		q.Count("streamed events")
	}
}

// replayed checks that a repetition gets the recorded response of the first request, and only if it has the same
// content.
func (q *request) replayed(got reply) {
	limit := q.pre()
	q.mu.Lock()
	defer q.mu.Unlock()
	id := q.identityOf(q)
	number := got.header.Get("X-Run")
	at := slices.IndexFunc(id.proposed, func(c *run) bool { return strconv.Itoa(c.id) == number })
	if q.run != nil || at < 0 || id.recorded != nil && id.recorded != id.proposed[at] && id.valid(q.sent) {
		q.Violation("%v: repeated run %s, and recorded is %v", q, number, id.recorded)
		return
	}

	c := id.proposed[at]
	body := c.written
	if c.status == 204 {
		body = nil
	}
	switch {
	case got.status != c.status || !bytes.Equal([]byte(got.body), body) || got.header.Get("Set-Cookie") != "":
		q.Violation("%v: %d with %d bytes repeats %d with %d", q, got.status, len(got.body), c.status, len(body))
	case c.omitted():
		q.Violation("%v: run %d is repeated as if it were whole", q, c.id)
	case c.content != q.content:
		q.Violation("%v: the answer to another request is repeated", q)
	case id.recorded == c && time.Since(id.since) > id.retention+time.Second+limit:
		q.Violation("%v: repeated %v after it was recorded", q, time.Since(id.since))
	}

	q.Count("repeated")
	if q.gone() {
		q.Count("repeated without its resource")
	}
	if c.status >= 400 {
		q.Count("repeated an error")
	}
	if c.hostname() != q.hostname() {
		q.Count("repeated at another address")
	}
}
