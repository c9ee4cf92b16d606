package httplock

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/sim"
	"github.com/lockkit/lockkit/testutil"
	"github.com/lockkit/lockkit/testutil/locktest"
)

// TestSimulation sends random requests to the replicas of a random service, with the real servers of net/http and gin
// and with clients of each protocol. Meanwhile nodes, networks, replicas and leases fail; see drawProgram. An oracle
// (sim_oracle_test.go) judges all requests by the rules of the package documentation.
func TestSimulation(t *testing.T) {
	sim.CollectLess(t)
	sim.Campaign{Draw: drawProgram, Run: simulate, MustReach: mustReach}.Test(t)
}

// A moment is a point in the life of a request at which a blow can happen to it.
type moment int

const (
	never moment = iota
	waits        // it waits for its resource, with the lease of its Idempotency-Key
	granted
	begins // its handler begins
	works
	ends
	releases
	released
	completes
	completed
	moments
)

// blows are the faults that can happen to a request at a moment.
var blows = []string{"lose", "lose the first", "revoke", "revoke the first", "leave", "drain", "cut off", "kill", "refuse writes"}

func (q *request) at(m moment) bool { return moment(q.With["moment"]) == m }

// drawProgram draws a service, at least fifty requests, and faults.
func drawProgram(r *rand.Rand) sim.Program {
	one := func(in int) int { return (r.IntN(in) + 1) / in } // 1 with probability 1/in, else 0
	p := sim.Program{Plan: map[string]int{
		"replicas": r.IntN(4), "nodes": 2 * r.IntN(2), "host": r.IntN(len(hosts)), "key": r.IntN(keyKinds), "once": r.IntN(3),
		"services": one(6), "tenants": one(2), "senders": one(2), "arrived": one(2), "lifts": one(2), "wait": sim.Pick(r, 0, 300, 1000, 3000, 5000), "waiters": sim.Pick(r, 0, 0, 1, 2, 4),
		"retention": sim.Pick(r, 0, 0, 2, 6), "small": one(5), "reply": one(4), "ttl": sim.Pick(r, 0, 2000, 3000, 6000),
		"write timeout": sim.Pick(r, 0, 0, 0, 4000), "read timeout": sim.Pick(r, 0, 0, 0, 2000),
	}}

	if p.Plan["key"] == noKey {
		p.Plan["once"] = max(1, p.Plan["once"])
	}
	if r.IntN(3) == 0 {
		p.Plan["delay"], p.Plan["late"], p.Plan["lost"] = sim.Pick(r, 1, 3, 10), sim.Pick(r, 0, 20), sim.Pick(r, 0, 10, 30)
	}

	struck, busy := r.IntN(3)-1, r.IntN(2) == 0 // 1: blows are frequent, 0: they are rare, -1: there are none
	at := time.Duration(0)

	for range 50 + r.IntN(20) {
		if r.IntN(5) > 0 || !busy {
			at += sim.Between(r, time.Millisecond, time.Second)
		}
		p.Steps = append(p.Steps, drawRequest(r, p, at, struck))
	}

	for range p.Plan["key"] / byKey * r.IntN(3) {
		p.Steps = append(p.Steps, sim.Step{At: time.Duration(r.Int64N(int64(at))), Do: sim.Pick(r, "job", "complete"), Who: r.IntN(2),
			For: sim.Between(r, 50*time.Millisecond, 2*time.Second)})
	}

	for range sim.Pick(r, 0, 0, 1, 2, 5) {
		s := sim.Step{At: time.Duration(r.Int64N(int64(at))), Who: r.IntN(4), For: sim.Between(r, 50*time.Millisecond, 8*time.Second)}
		s.Do = sim.Pick(r, "down", "hang", "slow", "restart", "restart empty", "flush", "promote", "drop replies", "refuse writes",
			"cut off", "kill", "drain", "shut down", "revoke")
		switch s.Do {
		case "slow":
			s.N = sim.Pick(r, 20, 150, 600)
		case "drop replies":
			s.N, s.For = 1+r.IntN(3), 0
		}
		p.Steps = append(p.Steps, s)
	}

	for _, s := range p.Steps {
		if s.Do == "request" && p.Plan["arrived"] > 0 && r.IntN(20) == 0 {
			s.With["past"] = 1 + r.IntN(len(simPasts))
		}
	}
	return p
}

// drawRequest draws a client's request, the behaviour of its handler, and its blow.
func drawRequest(r *rand.Rand, p sim.Program, at time.Duration, struck int) sim.Step {
	one := func(in int) int { return (r.IntN(in) + 1) / in } // 1 with probability 1/in, else 0
	rarely := func(in, n int) int { return n * one(in) }
	s := sim.Step{At: at, Do: "request", Who: r.IntN(4), With: map[string]int{
		"id": r.IntN(3) * r.IntN(2), "protocol": r.IntN(3), "method": sim.Pick(r, 0, 0, 0, 0, 0, 0, 1, 2+r.IntN(4)), "route": rarely(8, 1),
		"status": r.IntN(3) / 2 * r.IntN(len(statuses)), "kilobytes": rarely(6, sim.Pick(r, 3, 14, 19, 75)), "flush": rarely(4, 1),
		"length": rarely(6, 1+r.IntN(3)), "panic": rarely(10, 1+r.IntN(3)), "ignores": r.IntN(2), "again": rarely(8, 1), "record": rarely(8, 1),
		"events": rarely(5, 1+r.IntN(5)), "address": rarely(2, 1+r.IntN(3)), "nested": rarely(30, 1),
		"leave": rarely(8, 1+r.IntN(1000)), "deadline": rarely(8, 50+r.IntN(2000)),
		"stall": rarely(10, 1+r.IntN(3000)), "upload": rarely(10, 500), "lacks": rarely(20, 1+r.IntN(2)), "tenant": r.IntN(2), "sender": r.IntN(2),
	}}

	if r.IntN(4) > 0 {
		s.For = sim.Between(r, time.Millisecond, sim.Pick(r, 100*time.Millisecond, 3*time.Second))
	}

	if r.IntN(4) > 0 && (p.Plan["once"] > 1 || r.IntN(2) == 0) {
		k := 1 + r.IntN(6)
		s.With["once"], s.With["id"], s.With["route"], s.With["tenant"] = k, k%3, k%4/3, k%2 // requests with the same key are alike
		s.With["sender"] = k % 2
		s.With["other"] = rarely(2, 1+r.IntN(others))
		s.With["id"] = (s.With["id"] + one(10)) % 3
		s.With["route"] ^= one(10)
		s.With["tenant"] ^= one(10)
		s.With["sender"] ^= one(10)
		s.With["malformed"], s.With["gone"] = rarely(20, 1+r.IntN(3)), rarely(8, 1)
		if r.IntN(200) == 0 {
			s.With["kilobytes"] = 300
		}
	}

	if struck > 0 && r.IntN(4) == 0 || struck == 0 && r.IntN(20) == 0 {
		s.With["moment"], s.With["blow"], s.With["flush"] = 1+r.IntN(int(moments)-1), r.IntN(len(blows)), r.IntN(2)
	}
	return s
}

// A replica is one process of the service.
type replica struct {
	*locktest.Locker
	of      *simulation
	name    string
	service string
	m       *Middleware
	server  *server
	begun   time.Time
	drained time.Time // since when it refuses requests
	over    time.Time // since when it does not respond any more
}

// A simulation is one run of a program.
type simulation struct {
	*sim.Trial
	world    *world
	nodes    []*testutil.Node
	operator *core.Locker
	replicas []*replica
	host     host
	opts     []Option
	all      sync.WaitGroup // requests under way
	calm     bool           // the network has no more faults

	keys, leases, once sim.Exclusion // of resources, by contexts and by leases, and of identities

	mu         sync.Mutex
	emptied    time.Time // when a node last lost its memory
	requests   []*request
	runs       int
	troubles   []trouble
	identities map[string]*identity
	waiting    map[string][]*wait
	tokens     map[string]uint64 // the greatest token of each resource
	named      map[string]string // keys of resources and identities, and the reverse
}

// A trouble is a time in which a node may not answer. If node is -1, a replica is cut off from all nodes.
type trouble struct {
	node     int
	from, to time.Time
}

func (s *simulation) ttl() time.Duration {
	if s.Is("ttl") == 0 {
		return ttl
	}
	return max(2*time.Second, time.Duration(s.Is("ttl"))*time.Millisecond)
}

// ms returns a number of the plan, in milliseconds.
func (s *simulation) ms(name string) time.Duration {
	return time.Duration(s.Is(name)) * time.Millisecond
}

func simulate(t *sim.Trial) {
	s := &simulation{Trial: t, world: &world{T: t.T}, nodes: testutil.NewNodes(t, 1+t.Is("nodes")), host: hosts[t.Is("host")],
		identities: map[string]*identity{}, waiting: map[string][]*wait{}, tokens: map[string]uint64{}, named: map[string]string{}}

	sim.ByModel(t.Seed, s.nodes...)
	s.opts = s.options()
	first := locktest.NewOn(t, s.nodes, core.TTL(s.ttl()), core.WithClockWindow(s.ttl()/10), core.WithRestartGuard(true))
	s.operator = first.Locker
	for i := range 1 + t.Is("replicas") {
		s.replicas = append(s.replicas, s.start(first, i, 0))
	}

	end := time.Second
	for _, step := range t.Steps {
		end = max(end, step.At)
	}
	t.Follow(end, s.step)

	sim.Heal(s.nodes)
	s.calm = true
	for _, p := range s.replicas {
		p.Link.OnRequest(nil)
	}

	s.all.Wait()
	// By then all replicas are back, and the leases of dead replicas and the quarantines are over.
	time.Sleep(s.ttl() + 30*time.Second)
	s.atLast()
}

// start starts a replica, or its next generation.
func (s *simulation) start(first *locktest.Locker, i, generation int) *replica {
	p := &replica{of: s, name: fmt.Sprintf("%d.%d", i, generation), service: service, begun: time.Now()}
	if s.Is("services") > 0 && i%2 > 0 {
		p.service = "another"
	}
	p.Locker = first.Replica(core.MaxHold(time.Hour), core.WithObserver(core.Observer{Start: s.operation, Event: s.event}))
	if !s.calm {
		s.Network(p.Link, uint64(10*generation+i))
	}

	p.m = must(New(p.Locker.Locker, p.service, s.opts...))
	handler := s.around(p, s.host.handler(p.m, s.inside(p.m)))
	if s.Is("arrived") > 0 {
		handler = Arrived(handler)
	}

	h := &http.Server{Handler: handler, WriteTimeout: s.ms("write timeout"), ReadTimeout: s.ms("read timeout")}
	h.RegisterOnShutdown(p.m.Drain)
	p.server = s.world.serveWith(h)
	return p
}

// inside returns the handler inside a Lock. Requests that are nested meet another Lock there.
func (s *simulation) inside(m *Middleware) http.HandlerFunc {
	within := m.LockHandler(http.HandlerFunc(s.handle))
	return func(w http.ResponseWriter, r *http.Request) {
		if !s.request(r).nested() {
			s.handle(w, r)
			return
		}
		inner := r.Clone(r.Context())
		inner.Pattern = "/inner/{id}"
		inner.SetPathValue("id", "1")
		within.ServeHTTP(w, inner)
	}
}

// step does a step of the program.
func (s *simulation) step(step sim.Step) {
	if step.Do == "request" {
		q := s.newRequest(step, s.replicas[step.Who%len(s.replicas)])
		s.all.Go(q.send)
		return
	}
	at := step.Who % len(s.replicas)
	p := s.replicas[at]
	switch step.Do {
	case "cut off":
		p.cutOff(step.For)
	case "drain":
		p.drain()
		s.replace(at, step.For)
	case "kill":
		p.kill()
		s.replace(at, step.For)
	case "shut down":
		if s.begin(&p.drained) {
			s.all.Go(func() { p.shutDown(step.For) })
			s.replace(at, step.For)
		}
	case "revoke":
		s.revokeAny(step.Who)
	case "job", "complete":
		s.all.Go(func() { s.job(step) })
	case "refuse writes":
		s.refuseWrites(step.Who%len(s.nodes), step.For)
	default:
		s.strike(step)
	}
}

// when returns the time *t, which is zero if it is not set yet.
func (s *simulation) when(t *time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return *t
}

// begin sets *t to the present time, unless it is set already. It reports whether it has set it.
func (s *simulation) begin(t *time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !t.IsZero() {
		return false
	}
	*t = time.Now()
	return true
}

// replace starts the next generation of a replica that goes away.
func (s *simulation) replace(at int, after time.Duration) {
	old, generation := s.replicas[at], 0
	fmt.Sscanf(old.name, "%d.%d", new(int), &generation)
	s.replicas[at] = s.start(old.Locker, at, generation+1)
	s.all.Go(func() {
		time.Sleep(after + s.ttl())
		old.kill() // in case it still responds
	})
}

func (p *replica) drain() {
	if p.of.begin(&p.drained) {
		p.m.Drain()
	}
}

func (p *replica) kill() {
	if p.of.begin(&p.over) {
		p.of.begin(&p.drained)
		p.Link.Kill()
		p.server.Server.Close()
	}
}

func (p *replica) cutOff(d time.Duration) {
	p.of.note(-1, d+time.Second)
	p.Link.Cut()
	time.AfterFunc(d, p.Link.Restore)
}

// shutDown shuts a replica down as the package documentation says, with or without Shutdown of the server.
func (p *replica) shutDown(patience time.Duration) {
	s := p.of
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	p.m.Drain()
	if patience.Milliseconds()%2 == 0 {
		_ = p.server.Shutdown(ctx) // fails if the patience is not enough
	}
	err := p.m.Close(ctx)
	s.closed(p, err, ctx.Err() != nil && patience < time.Minute)
	s.Tracef("replica %s is shut down: %v", p.name, err)
	s.begin(&p.over)
	_ = p.Locker.Close(ctx) // the tests of core judge it
	p.server.Server.Close()
}

// refuseWrites makes a node refuse writes for a while, as without memory.
func (s *simulation) refuseWrites(node int, d time.Duration) {
	s.note(node, d)
	n := s.nodes[node]
	n.Refuse("SET", "OOM command not allowed")
	time.AfterFunc(d, func() { n.Refuse("SET", "") })
}

// revokeAny revokes a live lease of a request, as an operator does.
func (s *simulation) revokeAny(which int) {
	s.mu.Lock()
	all := slices.Clone(s.requests)
	s.mu.Unlock()
	for i := range all {
		q := all[(which+i)%len(all)]
		for _, lease := range q.held() {
			if lease.Context().Err() == nil {
				q.takeAway(lease, true)
				return
			}
		}
	}
}

// job acquires the key of a resource, as a program other than the service does. It releases or completes the key.
func (s *simulation) job(step sim.Step) {
	id := strconv.Itoa(step.Who % 2)
	lease, err := s.operator.Acquire(s.Context(), core.Key("order", id), core.MaxWait(3*time.Second), core.Retention(max(time.Second, step.For)))
	if err != nil {
		return // the key is held or completed
	}

	s.Count("job")
	s.keys.Enter(s.Trial, lease.Context(), "order "+id, "the job")
	s.mu.Lock()
	if last := s.tokens["order "+id]; lease.FencingToken() <= last {
		s.Violation("a job has token %d after %d", lease.FencingToken(), last)
	}
	s.tokens["order "+id] = lease.FencingToken()
	s.mu.Unlock()

	if time.Sleep(step.For); step.Do == "job" {
		_ = lease.Release(s.Context()) // fails if the lease is lost
		return
	}
	_ = lease.Complete(s.Context(), nil)
}

// strike makes a node fail.
func (s *simulation) strike(step sim.Step) {
	node := step.Who % len(s.nodes)
	lasts := step.For
	switch step.Do {
	case "restart empty", "flush", "promote", "restart":
		// A quarantine begins with the next request to the node, within five seconds.
		lasts = s.ttl() + 6*time.Second
		if s.ailing(node) {
			lasts += 5 * time.Second // that request may be lost
		}
	case "drop replies":
		lasts = time.Second
	}

	s.note(node, lasts)
	s.Strike(s.nodes, step)
	if step.Do == "restart empty" || step.Do == "flush" {
		s.forgot()
	}
}

// ailing reports whether a trouble of a node has not ended yet.
func (s *simulation) ailing(node int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.troubles, func(t trouble) bool { return t.node == node && t.to.After(time.Now()) })
}

// note adds a trouble of the duration d. It includes two seconds until requests go to the node again.
func (s *simulation) note(node int, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.troubles = append(s.troubles, trouble{node, time.Now(), time.Now().Add(d + 2*time.Second)})
}

// atLast sends requests that must succeed, because all is well now, and closes the replicas.
func (s *simulation) atLast() {
	s.followed()
	for i, p := range s.replicas {
		if !s.when(&p.drained).IsZero() { // a blow has drained it
			s.replace(i, 0)
			p = s.replicas[i]
		}
		for id := range 3 {
			q := s.newRequest(sim.Step{Who: i, With: map[string]int{"id": id, "once": 100 + 10*i + id, "last": 1}}, p)
			q.send()
		}
	}

	for _, first := range s.repeatable() {
		again := s.newRequest(first.Step, first.replica)
		again.With = map[string]int{"last": 1}
		for _, name := range []string{"id", "once", "other", "method", "route", "tenant", "sender"} {
			again.With[name] = first.With[name]
		}
		for _, p := range s.replicas {
			if p.service == first.replica.service {
				again.replica = p
			}
		}
		again.send()
	}

	s.all.Wait()
	for _, p := range s.replicas {
		p.shutDown(time.Minute)
		if len(p.m.admission.used) > 0 {
			s.Violation("replica %s: %v are left in use", p.name, p.m.admission.used)
		}
	}
}

const (
	byParam = iota
	byJSON
	byFunc
	byKey
	noKey
	keyKinds
)

// options returns the options of the plan.
func (s *simulation) options() []Option {
	by := [keyKinds]Option{
		ByParam("id"), ByJSON("order", "id"), ByFunc(header("X-Order")),
		ByKey(func(r *http.Request) (string, error) {
			id, err := header("X-Order")(r)
			if id != "" {
				id = core.Key("order", id)
			}
			return id, err
		}),
	}
	opts := append(s.limits(), smallBuffers)
	if by := by[s.Is("key")]; by != nil {
		opts = append(opts, by)
	}
	if s.Is("once") > 0 || s.Is("key") == noKey {
		opts = append(opts, WithIdempotency(s.Is("once") == 2, s.sender()))
	}
	if s.Is("tenants") > 0 {
		opts = append(opts, WithTenant(header("X-Tenant")))
	}
	if n := s.Is("retention"); n > 0 {
		opts = append(opts, WithRetention(time.Duration(n)*time.Second))
	}
	if s.Is("small") > 0 {
		opts = append(opts, WithBodyLimit(smallBody), WithMemory(smallMemory))
	}
	return opts
}

// sender returns the function that names the senders of requests.
func (s *simulation) sender() func(*http.Request) (string, error) {
	if s.Is("senders") > 0 {
		return header("X-Sender")
	}
	return NoSender
}

// limits returns the options for waiting and for refusals.
func (s *simulation) limits() (opts []Option) {
	if s.ms("wait") != defaults.maxWait {
		opts = append(opts, WithMaxWait(s.ms("wait")))
	}
	if n := s.Is("waiters"); n > 0 {
		opts = append(opts, WithMaxWaiters(n))
	}
	if s.Is("reply") > 0 {
		opts = append(opts, WithReply(func(w http.ResponseWriter, r *http.Request, refusal Refusal) {
			w.Header().Set("X-Kind", string(refusal.Kind))
			if refusal.Kind != EventBusy {
				refusal.Write(w)
				return
			}
			w.WriteHeader(http.StatusLocked)
		}))
	}
	return opts
}

const (
	smallBody   = 300
	smallMemory = 900

	// With the default limits, large responses would take a large part of the simulation's time.
	streamThreshold = 25 << 10
	maxBuffered     = 256 << 10
	maxRecord       = 15 << 10
)

func smallBuffers(c *config) {
	c.streamThreshold, c.maxBuffered, c.maxRecord = streamThreshold, maxBuffered, maxRecord
}

// header returns a function for an option. It returns a header of the request.
func header(name string) func(r *http.Request) (string, error) {
	return func(r *http.Request) (string, error) { return r.Header.Get(name), nil }
}

// request returns the request that a handler serves.
func (s *simulation) request(r *http.Request) *request {
	n, _ := strconv.Atoi(r.Header.Get("X-Request"))
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests[n]
}

// mustReach has the events that a hundred programs reach together: refusals, ends, faults and blows.
var mustReach = []string{
	"answered HTTP/1.0", "answered HTTP/1.1", "answered HTTP/2.0", "passed", "recorded", "replayed", "record_open",
	"busy", "done", "queue_full", "overloaded", "draining", "unavailable", "client_gone", "lost", "key_missing", "body_broken",
	"body_too_large", "answer_too_large", "idempotency_key", "idempotency_in_flight", "idempotency_mismatch",
	"idempotency_omitted", "broken: its client left", "broken: its replica died", "broken: lost stream", "broken: panic",
	"broken: short", "told of a loss", "told of its client left", "told of its deadline", "served in order", "job", "closed",
	"repeated an error", "repeated at another address", "ran again after a response that invites a retry", "streamed events", "lost while waiting",
	"repeated without its resource", "two Locks", "written past",
	"close in vain", "lose", "lose the first", "revoke", "revoke the first", "leave", "drain", "cut off", "kill", "refuse writes",
	"down", "hang", "slow", "restart", "restart empty", "flush", "promote", "drop replies", "shut down", "complete",
}
