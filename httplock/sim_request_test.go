package httplock

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/admin"
	"github.com/lockkit/lockkit/internal/sim"
)

// A request is a request of a client, and its history.
type request struct {
	sim.Step
	*simulation
	number  int
	replica *replica
	cancel  context.CancelFunc

	// These follow from the rules. resource and identity are empty if the request does not lock one.
	method, resource, identity, content string
	body                                string

	sent          time.Time
	left          time.Time // when its client left
	came          time.Time // when it reached the server, perhaps without its whole body
	over          time.Time // when the server was done with it
	aborted       time.Time // when a panic left the outermost handler
	run           *run
	leases        []*core.Lease
	lost          time.Time     // when a lease was found lost
	refuted       time.Time     // when a release or a record found a lease lost
	struck        bool          // its blow has happened
	revoked       bool          // its blow has revoked a lease
	slow          time.Duration // the time that its blow took
	events        []core.EventKind
	open          time.Time // when it was reported that its record is open
	offered, done time.Time // when its recording began, and when it was confirmed
	ending        int       // the number of releases and records under way
}

// A run is a run of a handler.
type run struct {
	*request
	id           int
	ctx          context.Context
	w            http.ResponseWriter
	began, ended time.Time
	flushed      time.Time
	lost         bool // a lease was lost by the time it returned
	panicked     bool
	status       int
	announced    int    // the Content-Length that it has set
	written      []byte // the bytes that Write has taken
	header       http.Header
	unheard      time.Time // when the first of its leases ended
	told         time.Time // when it first saw that its context had ended
}

type requestKey struct{}

// simPasts has the successes that handlers send past their Locks.
var simPasts = []step{pasts["write"], pasts["whole, flushed"], pasts["204, flushed"], pasts["copy"]}

// others is the number of ways in which a request can differ from the first one with its Idempotency-Key.
const others = 10

var statuses = []int{200, 201, 204, 400, 401, 403, 404, 407, 408, 409, 422, 423, 425, 429, 499, 500, 503, 507, 205, 303}

const noContent = 2 // the index of 204 in statuses

func (s *simulation) onceOn() bool { return s.Is("once") > 0 || s.Is("key") == noKey }

// newRequest returns the request of a step.
func (s *simulation) newRequest(step sim.Step, p *replica) *request {
	q := &request{Step: step, simulation: s, replica: p, method: []string{"PUT", "POST", "GET", "HEAD", "OPTIONS", "TRACE"}[step.With["method"]]}
	id := strconv.Itoa(q.With["id"])
	if q.With["other"] == 5 && q.method == "PUT" {
		q.method = "POST"
	}
	name := id
	if q.lacksKey() {
		name = ""
	}
	different := map[int]int{1: 1, 2: 2}[q.With["other"]]
	q.body = fmt.Sprintf(`{"order":{"id":%q},"other":%d,"pad":%q}`, name, different, strings.Repeat("x", q.With["upload"]))
	s.mu.Lock()
	q.number = len(s.requests)
	s.requests = append(s.requests, q)
	s.mu.Unlock()
	if q.safe() {
		return q
	}

	tenant := ""
	if s.Is("tenants") > 0 {
		tenant = q.tenant()
	}

	switch s.Is("key") {
	case noKey:
	case byKey:
		q.resource = "order " + id
	default:
		q.resource = fmt.Sprint(p.service, tenant, q.path(), id)
	}

	if s.onceOn() && q.key() != "" {
		sender := ""
		if s.Is("senders") > 0 {
			sender = q.sentBy()
		}
		q.identity = fmt.Sprintf("%s %q %q %s %s%s %d", p.service, tenant, sender, q.method, q.path(), id, q.With["once"])
		q.content = fmt.Sprint(q.target(), q.body)
		if sender == "" {
			q.content += fmt.Sprintf("%q", q.credentials())
		}
	}
	return q
}

func (q *request) safe() bool { return q.With["method"] > 1 }

// free reports whether the request needs no lock.
func (q *request) free() bool { return q.resource+q.identity == "" && len(q.invalid()) == 0 }

func (q *request) lacksKey() bool { return q.With["lacks"] == 1 }

// gone reports whether the function that makes the key of the resource does not find the resource any more.
func (q *request) gone() bool {
	return q.With["gone"] > 0 && (q.Is("key") == byFunc || q.Is("key") == byKey)
}

// past reports whether the handler has run, and has sent a success past its Lock.
func (q *request) past() bool { return q.With["past"] > 0 && q.run != nil && !q.free() }

// tooLarge reports whether the response is too large to be held back.
func (q *request) tooLarge() bool { return q.With["kilobytes"] > maxBuffered>>10 }

// nested reports whether the request meets another Lock inside the Lock of its route.
func (q *request) nested() bool { return q.With["nested"] > 0 && !q.safe() && !q.free() }

func (q *request) lacksTenant() bool { return q.With["lacks"] == 2 }

func (q *request) path() string {
	if q.With["route"] > 0 {
		return "/refunds/"
	}
	return "/orders/"
}

func (q *request) target() string {
	target := q.path() + strconv.Itoa(q.With["id"])
	if q.With["other"] == 3 {
		target += "?x=1"
	}
	return target
}

// hostname returns the host of the service in the request; "" is the usual one.
func (q *request) hostname() string {
	if name := map[int]string{6: "other.example", 7: "Example.COM"}[q.With["other"]]; name != "" {
		return name
	}
	return []string{"", "example.com:8080", "example.com:8081", "shop.internal"}[q.With["address"]]
}

func (q *request) tenant() string {
	if q.lacksTenant() {
		return ""
	}
	return []string{"alice", "bob"}[q.With["tenant"]]
}

// sentBy returns the name of the sender.
func (q *request) sentBy() string { return []string{"carol", "dave"}[q.With["sender"]] }

// key returns the value of the header Idempotency-Key.
func (q *request) key() string {
	k := q.With["once"]
	switch {
	case k == 0 || q.With["lacks"] == 3:
		return ""
	case q.With["malformed"] > 0:
		return []string{`"open`, strings.Repeat("x", 256), `""`}[q.With["malformed"]-1]
	case q.With["other"] == 8:
		return fmt.Sprintf(`"k%d"`, k)
	}
	return fmt.Sprint("k", k)
}

func (q *request) credentials() (c [3]string) {
	switch q.With["other"] {
	case 9:
		c[0] = "Bearer x"
	case 10:
		c[1] = "a=b"
	case 4:
		c[2] = "x"
	}
	return c
}

// send sends the request, and judges the response.
func (q *request) send() {
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), requestKey{}, q))
	defer cancel()
	q.cancel = cancel
	req := must(http.NewRequestWithContext(ctx, q.method, "http://example.com"+q.target(), strings.NewReader(q.body)))
	req.Host = cmp.Or(q.hostname(), req.Host)

	c := q.credentials()
	order := strconv.Itoa(q.With["id"])
	if q.lacksKey() || q.gone() {
		order = ""
	}
	for name, value := range map[string]string{"X-Request": strconv.Itoa(q.number), "Idempotency-Key": q.key(), "X-Tenant": q.tenant(),
		"Authorization": c[0], "Cookie": c[1], "X-Api-Key": c[2], "X-Order": order, "X-Sender": q.sentBy()} {
		if value != "" {
			req.Header.Set(name, value)
		}
	}

	q.begin(&q.sent)
	if ms := q.With["leave"]; ms > 0 {
		defer time.AfterFunc(time.Duration(ms)*time.Millisecond, q.leave).Stop()
	}

	got := q.replica.server.roundTrip(protocols[(q.With["protocol"]+1)%3], req, q.stall())
	q.seen().judge(got)
}

// seen returns a copy of the request and its run.
func (q *request) seen() *request {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := *q
	if q.run != nil {
		run := *q.run
		now.run = &run
	}
	return &now
}

// delay returns the time that the blow of the request took.
func (q *request) delay() time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.slow
}

func (q *request) stall() time.Duration { return time.Duration(q.With["stall"]) * time.Millisecond }

// leave makes the client leave.
func (q *request) leave() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.left.IsZero() {
		q.left = time.Now()
		q.cancel()
	}
}

// around returns the outermost handler.
func (s *simulation) around(p *replica, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := s.request(r)
		ctx := context.WithValue(context.WithValue(r.Context(), requestKey{}, q), keptKey{}, w)
		if ms := q.With["deadline"]; ms > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, time.Duration(ms)*time.Millisecond)
			defer cancel()
		}
		if s.Is("lifts") > 0 { // a middleware may set a deadline, and lift it for keep-alive
			control := http.NewResponseController(w)
			_ = control.SetWriteDeadline(time.Now().Add(time.Hour))
			defer control.SetWriteDeadline(time.Time{})
		}
		s.begin(&q.came)
		defer func() {
			p := recover()
			if p != nil {
				s.begin(&q.aborted)
			}
			if s.begin(&q.over); p != nil {
				panic(p)
			}
		}()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// handle is the handler of all requests.
func (s *simulation) handle(w http.ResponseWriter, r *http.Request) {
	q := r.Context().Value(requestKey{}).(*request)
	c := s.starts(q, w, r)
	if q.free() {
		return
	}
	defer s.returns(c)
	if body, err := io.ReadAll(r.Body); err != nil || string(body) != q.body {
		c.Violation("%v: its handler gets the body %.50q, %v", q, body, err)
	}

	if n := q.With["past"]; n > 0 {
		simPasts[n-1](keptBy(r))
	}

	h := w.Header()
	h.Set("X-Run", strconv.Itoa(c.id))
	h.Set("Set-Cookie", "secret=1")
	if q.With["again"] > 0 {
		h.Set("Retry-After", "1")
	}

	text := bytes.Repeat(fmt.Appendf(nil, "run %d, ", c.id), 2+q.With["kilobytes"]*128)
	switch n := q.With["length"]; {
	case n == 3:
		h.Set("Transfer-Encoding", "identity") // with it, the end of the connection would end the body
	case n > 0 && q.With["status"] != noContent: // 2 announces twice the length of the text
		s.mu.Lock()
		c.announced = len(text) * n
		s.mu.Unlock()
		h.Set("Content-Length", strconv.Itoa(c.announced))
	}
	if q.With["record"] > 0 {
		Record(r)
	}

	q.blow(begins)
	if q.With["panic"] == 1 {
		panic("nothing was written")
	}
	if status := statuses[q.With["status"]]; status != 200 {
		s.mu.Lock()
		c.status = status
		s.mu.Unlock()
		w.WriteHeader(status)
	}

	c.write(text[:len(text)/2])
	if q.With["flush"] > 0 {
		w.(http.Flusher).Flush()
		s.begin(&c.flushed)
	}

	c.converses()
	q.blow(works)
	if q.With["panic"] == 2 {
		panic(http.ErrAbortHandler)
	}

	c.write(text[len(text)/2:])
	q.blow(ends)
	if q.With["panic"] == 3 {
		panic("all was written")
	}
}

func (c *run) write(b []byte) {
	n, err := c.w.Write(b)
	c.mu.Lock()
	c.written = append(c.written, b[:n]...)
	c.mu.Unlock()
	if err == nil && c.anyLost() != nil {
		c.Violation("%v: written after the loss", c)
	}
}

// converses works for the time of the step, and may send events meanwhile.
func (c *run) converses() {
	n := 0
	if c.With["length"] == 0 {
		n = c.With["events"]
	}
	for i := range n {
		c.works(c.For / time.Duration(n+1))
		c.write(fmt.Appendf(nil, "event %d", i))
		c.w.(http.Flusher).Flush()
		c.begin(&c.flushed)
	}
	c.works(c.For / time.Duration(n+1))
}

// works waits for d. If the context ends first, it returns, unless the handler ignores that.
func (c *run) works(d time.Duration) {
	over := time.After(d)
	select {
	case <-over:
		return
	case <-c.ctx.Done():
		if c.begin(&c.told) { // a lease that is lost later is not the cause
			c.toldWhy()
		}
	}
	if c.With["ignores"] > 0 {
		<-over
	}
}

func (c *run) anyLost() error {
	for _, lease := range c.held() {
		if err := lease.Lost(); err != nil {
			return err
		}
	}
	return nil
}

// blow makes the blow of the request happen if m is its moment.
func (q *request) blow(m moment) {
	q.mu.Lock()
	if !q.at(m) || q.struck {
		q.mu.Unlock()
		return
	}

	q.struck = true
	q.mu.Unlock()

	leases := q.held()
	what := blows[q.With["blow"]]
	began := time.Now()
	q.Tracef("%v: %s at moment %d", q, what, m)
	switch what {
	case "lose", "lose the first", "revoke", "revoke the first":
		if len(leases) == 0 {
			return
		}
		lease := leases[len(leases)-1]
		if strings.HasSuffix(what, "first") {
			lease = leases[0]
		}
		q.takeAway(lease, strings.HasPrefix(what, "revoke"))
	case "leave":
		q.leave()
	case "drain":
		q.replica.drain()
	case "cut off":
		q.replica.cutOff(q.For)
	case "kill":
		q.replica.kill()
	case "refuse writes":
		q.refuseWrites(q.number%len(q.nodes), q.For)
	}

	q.Count(what)
	q.Count(fmt.Sprint("moment ", m))
	q.mu.Lock()
	defer q.mu.Unlock()
	q.slow += time.Since(began)
}

// takeAway makes a lease lost. If it is revoked, its holder may notice that late.
func (q *request) takeAway(lease *core.Lease, revoke bool) {
	if revoke {
		q.mu.Lock()
		q.revoked = true
		q.mu.Unlock()
		// The call fails if the lease is over.
		_, _ = admin.Revoke(context.Background(), q.operator, lease.Key(), lease.FencingToken())
	} else if lease.Extend(1) == nil {
		<-lease.Context().Done()
	}
}

// held returns the leases of the request so far.
func (q *request) held() []*core.Lease {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Clone(q.leases)
}

// holds adds the lease of ctx to the leases of the request.
func (q *request) holds(ctx context.Context) {
	lease, ok := core.FromContext(ctx)
	q.mu.Lock()
	defer q.mu.Unlock()
	if ok && !slices.Contains(q.leases, lease) {
		q.leases = append(q.leases, lease)
	}
}

// operation is the Start function of the observer. It finds the request in ctx.
func (s *simulation) operation(ctx context.Context, op core.Op) (context.Context, func(core.Outcome)) {
	q, ok := ctx.Value(requestKey{}).(*request)
	if !ok {
		return ctx, nil
	}

	q.holds(ctx)
	switch op.Kind {
	case core.OpAcquire:
		second := q.identity != "" && !strings.Contains(op.Key, "http/idempotent")
		if second {
			q.blow(waits)
		}
		arrived := s.arrives(ctx, q, op)
		return ctx, func(out core.Outcome) {
			s.served(arrived, out.Err)
			if out.Err == nil && (second || q.identity == "" || q.resource == "") {
				q.blow(granted)
			}
		}
	case core.OpHold:
		return ctx, func(out core.Outcome) { q.ended(out, &q.lost) }
	case core.OpRelease:
		q.ends(1)
		q.blow(releases)
		return ctx, func(out core.Outcome) { q.ends(-1); q.ended(out, &q.lost, &q.refuted); q.blow(released) }
	case core.OpComplete:
		q.proposes(op)
		q.ends(1)
		q.blow(completes)
		return ctx, func(out core.Outcome) {
			q.ends(-1)
			q.recorded(out.Err)
			q.ended(out, &q.lost, &q.refuted)
			q.blow(completed)
		}
	}
	return ctx, nil
}

func (q *request) ends(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ending += n
}

// ended sets times if the outcome is the loss of a lease.
func (q *request) ended(out core.Outcome, notes ...*time.Time) {
	if errors.Is(out.Err, core.ErrLost) {
		for _, at := range notes {
			q.begin(at)
		}
	}
}

// event is the Event function of the observer.
func (s *simulation) event(ctx context.Context, e core.Event) {
	if q, ok := ctx.Value(requestKey{}).(*request); ok {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.events = append(q.events, e.Kind)
		if e.Kind == EventRecordOpen {
			q.open = time.Now()
		}
		s.Count(string(e.Kind))
	}
}

func (q *request) String() string {
	text := fmt.Sprintf("request %d at %s", q.number, q.replica.name)
	if q.resource != "" {
		text += fmt.Sprintf(" for %q", q.resource)
	}
	if q.identity != "" {
		text += fmt.Sprintf(", once %q", q.identity)
	}
	return text
}
