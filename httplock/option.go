package httplock

import (
	"net/http"
	"time"

	"github.com/lockkit/lockkit/internal/faults"
)

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

func defaults() config {
	return config{
		retention:  24 * time.Hour,
		maxWait:    5 * time.Second,
		maxWaiters: 64,
		bodyLimit:  1 << 20,
		memory:     64 << 20,
		reply:      func(w http.ResponseWriter, _ *http.Request, r Refusal) { r.Write(w) },
	}
}

// WithIdempotency makes a request with the header Idempotency-Key run once: see "Idempotency-Key" in the package document.
// Where a request has none, it is refused with 400 if required is true, and otherwise runs without. The default is that the
// header is ignored.
func WithIdempotency(required bool) Option {
	return func(c *config) { c.idempotency, c.required = true, required }
}

// WithRetention sets how long the answer to an Idempotency-Key is kept, at least a second. The default is 24 hours.
func WithRetention(d time.Duration) Option { return func(c *config) { c.retention = d } }

// WithMaxWait sets how long a request waits for its key, once its body is read. Zero: it does not wait. It waits for less
// where its context has a deadline or the http.Server a WriteTimeout: three quarters of what they leave, so that there is
// time for the handler. The default is 5 seconds.
func WithMaxWait(d time.Duration) Option { return func(c *config) { c.maxWait = d } }

// WithMaxWaiters sets how many requests of this process wait for one key, the next one included; more are refused with 429.
// 16 times as many as New was given may wait in this process for any key; more are refused with 503. The default is 64, and
// so 1,024 for all.
func WithMaxWaiters(n int) Option { return func(c *config) { c.maxWaiters = n } }

// WithBodyLimit sets how large the body of a request may be, in bytes; a larger one is refused with 413. The default is 1
// MiB.
func WithBodyLimit(bytes int) Option { return func(c *config) { c.bodyLimit = bytes } }

// WithMemory sets how many bytes the bodies of requests and the answers that are kept back may take in this process. While
// they take more, a request is refused with 503 before its handler runs. The answers of handlers that run are kept in any
// case: each adds at most 1 MiB, or 16 MiB where nothing is streamed. It is an option of New; all that With returns shares
// it. The default is 64 MiB.
func WithMemory(bytes int) Option { return func(c *config) { c.memory = bytes } }

// WithReply replaces the answers to requests that are refused, also that to one whose lease was lost. The header Retry-After
// is set, and the status is refusal.Status unless reply writes another one. Call refusal.Write for refusals that you do not
// replace. In gin, [GinContext] returns the context, whose Writer is w.
func WithReply(reply func(w http.ResponseWriter, r *http.Request, refusal Refusal)) Option {
	return func(c *config) { c.reply = reply }
}

// apply changes c by opts. What makes the key replaces what made it before.
func (c *config) apply(f *faults.List, opts []Option) {
	key, parts := c.key, c.parts
	c.key, c.parts, c.faults = nil, nil, nil
	faults.Set(f, c, opts)
	*f = append(*f, c.faults...)
	f.Check(c.key != nil && c.parts != nil, "ByKey makes all of the key: give no other part of it")
	f.Check(c.retention < time.Second, "a retention of %v: must be at least 1s", c.retention)
	f.Check(c.maxWait < 0, "a max wait of %v: must not be negative", c.maxWait)
	f.Check(c.maxWaiters < 1, "max waiters is %d: must be at least 1; for requests that do not wait, give WithMaxWait(0)", c.maxWaiters)
	f.Check(c.bodyLimit < 0, "a body limit of %d bytes: must not be negative", c.bodyLimit)
	f.Check(c.memory < c.bodyLimit, "a memory of %d bytes is less than one body may take, %d", c.memory, c.bodyLimit)
	f.Check(c.reply == nil, "WithReply: the function is nil")
	if !c.hasKey() {
		c.key, c.parts = key, parts
	}
	f.Check(!c.hasKey() && !c.idempotency, "nothing makes a key: give ByParam, ByJSON, ByFunc, ByKey or WithIdempotency")
}

func (c *config) hasKey() bool { return c.key != nil || c.parts != nil }
