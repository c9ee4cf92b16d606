package httplock

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/faults"
	"github.com/lockkit/lockkit/internal/gate"
	"github.com/lockkit/lockkit/internal/jsonfield"
)

// A Middleware locks requests. It serves any number of routes, whose keys differ by themselves, and is safe for concurrent
// use. Its options never change: routes that need others use another one, see With.
type Middleware struct {
	config
	service   string
	locker    *core.Locker
	admission *admission
}

// New returns a Middleware that locks on locker, which the caller keeps owning; the TTL and what else belongs to leases is
// set there. Keys belong to the service of that name, except those of [ByKey]. Replicas of one service use the same name,
// and services that share nodes use different names. The error names everything that is wrong with the options.
func New(locker *core.Locker, service string, opts ...Option) (*Middleware, error) {
	m := Middleware{config: defaults, service: service, locker: locker, admission: &admission{used: map[counted]int{}}}
	m.admission.draining, m.admission.drain = context.WithCancelCause(context.Background()) //nolint:forbidigo // lives until Close
	return m.With(opts...)
}

// With returns a Middleware with other options. It shares service, memory, the bound on all waiting requests, Drain and Close
// with m.
func (m *Middleware) With(opts ...Option) (*Middleware, error) {
	d := *m
	d.key, d.parts = nil, nil // what makes the key replaces what made it before
	faults.Set(&d.faults, &d.config, opts)
	d.faults.Check(d.key != nil && d.parts != nil, "ByKey makes all of the key: give no other part of it")
	d.faults.Check(d.retention < time.Second, "a retention of %v: must be at least 1s", d.retention)
	d.faults.Check(d.maxWait < 0, "a max wait of %v: must not be negative", d.maxWait)
	d.faults.Check(d.maxWaiters < 1, "max waiters is %d: must be at least 1; if none is to wait, give WithMaxWait(0)", d.maxWaiters)
	d.faults.Check(d.bodyLimit < 0, "a body limit of %d bytes: must not be negative", d.bodyLimit)
	d.faults.Check(d.memory < d.bodyLimit, "a memory of %d bytes is less than one body may take, %d", d.memory, d.bodyLimit)
	d.faults.Check(d.reply == nil, "WithReply: the function is nil")
	if !d.hasKey() {
		d.key, d.parts = m.key, m.parts
	}
	d.faults.Check(!d.hasKey() && !d.idempotency, "nothing makes a key: give ByParam, ByJSON, ByFunc, ByKey or WithIdempotency")
	d.faults.Check(d.service == "", "the service name is empty: it keeps the requests of services that share nodes apart")
	d.maxWaitersTotal = cmp.Or(m.maxWaitersTotal, max(16*d.maxWaiters, d.maxWaiters)) // also where that overflows

	var err error // a handler may outlast its request
	d.locker, err = m.locker.With(core.Detached(true), core.Retention(max(d.retention, time.Second)))
	d.faults.Check(err != nil, "%w", err)
	if err := d.faults.Err("httplock"); err != nil {
		return nil, err
	}
	return &d, nil
}

// Drain refuses new requests, and those that wait, with 503. Handlers that run are left alone. Drain does not wait, and
// suits http.Server.RegisterOnShutdown: Shutdown then need not wait for requests that wait for a key.
func (m *Middleware) Drain() {
	m.admission.inside.Close()
	m.admission.drain(errDraining)
}

// Close drains, and waits until no handler runs and every key was released. If ctx ends first, the error is its cause and
// says how many requests are left; these keep their keys until they are over. Close also ends all Middlewares that With
// returned. It does not close the Locker: do that afterwards.
func (m *Middleware) Close(ctx context.Context) error {
	m.Drain()
	if err := m.admission.inside.Wait(ctx); err != nil {
		return fmt.Errorf("httplock: %w, with %d requests under way", err, m.admission.inside.Inside())
	}
	return nil
}

// An Option configures New or With.
type Option func(*config)

// config is what the options said.
type config struct {
	key    part // all of it, in place of parts
	parts  []part
	tenant part

	idempotency, required bool // Idempotency-Keys are heeded; no request goes without
	retention             time.Duration

	maxWait                     time.Duration
	maxWaiters, maxWaitersTotal int
	bodyLimit, memory           int
	reply                       func(http.ResponseWriter, *http.Request, Refusal)

	faults faults.List // of single options
}

// A part makes a component of a key. An error that is no *rejection says why the request does not name what it should.
type part = func(x *exchange) (string, error)

var defaults = config{
	retention:  24 * time.Hour,
	maxWait:    5 * time.Second,
	maxWaiters: 64,
	bodyLimit:  1 << 20,
	memory:     64 << 20,
	reply:      func(w http.ResponseWriter, _ *http.Request, r Refusal) { r.Write(w) },
}

// ByParam makes the key of path parameters, with the values that the handler gets from c.Param or r.PathValue: decoded as the
// router does it, and not folded in any way. If a wildcard matches nothing, as in a request for /files/, the value is "/"
// with gin (/files/*path). With net/http (/files/{path...}) it is empty, and the request is refused with 400.
//
// The parts of a key add up: ByParam and ByJSON together make a key of both. Those that With is given replace those of its
// receiver. A key has the values of its parts, and not their names: if a route has two Locks, one by user and one by order,
// give one of them ByKey, or user 5 and order 5 share a key.
func ByParam(names ...string) Option {
	return func(c *config) {
		c.faults.Check(len(names) == 0, "ByParam: no name")
		for _, name := range names {
			bare := strings.Trim(name, ":*{}.")
			c.faults.Check(bare != name || name == "", "ByParam(%q): give the name as c.Param and r.PathValue take it: ByParam(%q)", name, bare)
			c.parts = append(c.parts, func(x *exchange) (string, error) {
				value := x.r.PathValue(name)
				known := value != "" || strings.Contains(x.r.Pattern, "{"+name) // {id}, {id...}, {id:regexp}
				if x.gin != nil {
					value, known = x.gin.Params.Get(name)
				}
				if !known {
					return "", misconfigured("route %s has no parameter %q", x.route, name)
				}
				return value, nil
			})
		}
	}
}

// ByJSON makes the key of a field of a JSON body, by the path to it: ByJSON("order", "id") reads 42 from
// {"order":{"id":42}}, and ByJSON("order.id") from {"order.id":42}. It must be a string, a number or a boolean, and not
// empty; 42 and "42" are one key, 42 and 42.0 two.
//
// Anything else is refused with 400. So is a field that is there twice, also in another case, because decoders differ in
// which of the two they take.
func ByJSON(path ...string) Option {
	return func(c *config) {
		c.faults.Check(len(path) == 0 || slices.Contains(path, ""), "ByJSON: the path to the field is empty, or a name in it")
		c.parts = append(c.parts, func(x *exchange) (string, error) {
			value, err := jsonfield.Of(x.body, path)
			if err != nil {
				return "", &rejection{EventKeyMissing, fmt.Sprintf("The field %s of the body does not name it: %v.", strings.Join(path, "."), err), err}
			}
			return value, nil
		})
	}
}

// ByFunc makes the key of what f returns. An error or an empty string is refused with 400; its text is not sent, and
// [WithReply] gets it as Refusal.Err. f may read the body; the handler gets it whole. In gin, [GinContext] returns the
// context.
func ByFunc(f func(r *http.Request) (string, error)) Option {
	return func(c *config) { c.parts = append(c.parts, function(c, "ByFunc", f)) }
}

// ByKey makes f return the key itself, without service and route; build it with core.Key. Requests and other users of the
// key (another route or service, a task, a job, core.Locker.Do) exclude each other, and share its fencing tokens. f is
// called as with ByFunc; a key that core refuses is refused with 500. ByKey cannot be combined with other parts of a key;
// [WithTenant] is then part of the Idempotency-Key only.
func ByKey(f func(r *http.Request) (string, error)) Option {
	return func(c *config) { c.key = function(c, "ByKey", f) }
}

// WithTenant makes what f returns part of all keys, so that tenants share nothing. f is called as with ByFunc: put the
// authentication before Lock. An error or an empty tenant is refused with 400. If credentials change between repetitions,
// such as renewed tokens, let f return the user they stand for.
//
// By default there are no tenants, and a repetition with other credentials (the headers Authorization, Cookie and
// X-Api-Key, and the client's certificate) is refused with 422.
func WithTenant(f func(r *http.Request) (string, error)) Option {
	return func(c *config) { c.tenant = function(c, "WithTenant", f) }
}

// function makes a part of a function of the user's.
func function(c *config, option string, f func(*http.Request) (string, error)) part {
	c.faults.Check(f == nil, "%s: the function is nil", option)
	return func(x *exchange) (value string, err error) {
		x.show(func(r *http.Request) { value, err = f(r) })
		return value, err
	}
}

// WithIdempotency makes a request with the header Idempotency-Key run once; see "Idempotency-Key" in the package document.
// If required is true, requests without the header are refused with 400. By default the header is ignored.
func WithIdempotency(required bool) Option {
	return func(c *config) { c.idempotency, c.required = true, required }
}

// WithRetention sets how long the response to an Idempotency-Key is kept, at least a second. The default is 24 hours.
func WithRetention(d time.Duration) Option { return func(c *config) { c.retention = d } }

// WithMaxWait limits the time that a request spends waiting for its key, after its body was read. If it is 0, the request
// does not wait. If the request's context has a deadline, or the http.Server a WriteTimeout, the limit is three quarters of
// what they leave, if that is less. The default is 5 seconds.
func WithMaxWait(d time.Duration) Option { return func(c *config) { c.maxWait = d } }

// WithMaxWaiters sets how many requests of this process may wait for one key, at least 1; more are refused with 429. For
// all keys together, 16 times as many as New was given may wait; more are refused with 503. The default is 64, and so 1,024
// for all keys.
func WithMaxWaiters(n int) Option { return func(c *config) { c.maxWaiters = n } }

// WithBodyLimit sets how large the body of a request may be, in bytes, at most what [WithMemory] sets. A larger one is
// refused with 413. The default is 1 MiB.
func WithBodyLimit(bytes int) Option { return func(c *config) { c.bodyLimit = bytes } }

// WithMemory sets how many bytes the bodies of requests and the responses that are held back may take in this process, over
// all Middlewares that New and With returned together. While they take more, requests are refused with 503 before their
// handlers run. Responses of handlers that run are kept in any case: each adds at most 1 MiB, or 16 MiB if it is not
// streamed. The default is 64 MiB.
func WithMemory(bytes int) Option { return func(c *config) { c.memory = bytes } }

// WithReply sets the function that answers requests that are refused, including those whose lease was lost. The header
// Retry-After is set, and the status is refusal.Status unless reply writes another one. Call refusal.Write for refusals
// that you do not replace. In gin, [GinContext] returns the context, whose Writer is w. By default Refusal.Write answers.
func WithReply(reply func(w http.ResponseWriter, r *http.Request, refusal Refusal)) Option {
	return func(c *config) { c.reply = reply }
}

func (c *config) hasKey() bool { return c.key != nil || c.parts != nil }

// An admission bounds, counts and drains the requests of all Middlewares derived from one New.
type admission struct {
	inside   gate.Gate       // requests, and what goes on in the background after them
	draining context.Context // ends when the server drains
	drain    context.CancelCauseFunc

	mu   sync.Mutex
	used map[counted]int // waiting requests by key, and of all; bytes of memory
}

// What is counted is the waiting requests of a key, or a total.
type counted struct{ key, total string }

var waiters, memory = counted{total: "waiters"}, counted{total: "memory"} // of bodies and answers

// errDraining is of class closed: this process takes no more requests.
var errDraining = fmt.Errorf("httplock: draining: %w", core.ErrClosed)

// use takes n of what, or gives -n back, and reports whether that leaves no more than most in use. If not, nothing is taken.
func (a *admission) use(what counted, n, most int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if n >= 0 && a.used[what] > most-n {
		return false
	}
	if a.used[what] += n; a.used[what] == 0 {
		delete(a.used, what)
	}
	return true
}
