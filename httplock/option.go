package httplock

import (
	"net/http"
	"slices"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/internal/faults"
)

// An Option configures New or With.
type Option func(*config)

// config is what the options said.
type config struct {
	key    part // all of it; instead of parts, tenant and scope
	parts  []part
	tenant part
	scope  string

	readsBody bool // a part does

	maxWait, maxHold            time.Duration
	maxWaiters, maxWaitersTotal int
	bodyLimit, buffer           int
	bodyTimeout                 time.Duration
	maxBodies                   int
	safeMethods                 bool
	busyStatus                  int
	reply                       func(*gin.Context, Refusal) // nil = httpReply
	httpReply                   func(http.ResponseWriter, *http.Request, Refusal)

	idempotencyRequired bool
	retention           time.Duration
	recordLimit         int
	record              func(status int) bool // nil = by default
	replayHeaders       []string

	faults faults.List // of single options
}

func defaults() config {
	return config{
		maxWait:    5 * time.Second,
		maxWaiters: 64, maxWaitersTotal: 1024,
		bodyLimit:   64 << 10,
		bodyTimeout: 5 * time.Second, maxBodies: 1024,
		busyStatus:    http.StatusConflict,
		httpReply:     func(w http.ResponseWriter, _ *http.Request, r Refusal) { r.Write(w) },
		retention:     24 * time.Hour,
		recordLimit:   1 << 20,
		replayHeaders: []string{"Content-Type", "Content-Encoding", "Content-Language", "Content-Disposition", "Location", "ETag", "Last-Modified", "Link"},
	}
}

// WithMaxWait bounds how long a request waits for its key, from when it came to its handler. 0: it does not wait at all. It
// waits for less where its context has a deadline or the http.Server a WriteTimeout: three quarters of what they leave, so
// that there is time for the handler. Default 5s.
func WithMaxWait(d time.Duration) Option { return func(c *config) { c.maxWait = d } }

// WithMaxHold ends the handler's context this long after the key was granted, with a cause that matches core.ErrLost. The
// answer is the one after a loss. A handler that does not return then keeps the key until its lease has run out, which is
// not renewed any more: for another TTL at most, see core.MaxHold. It holds for Lock and for Once. Default 0: no limit.
func WithMaxHold(d time.Duration) Option { return func(c *config) { c.maxHold = d } }

// WithMaxWaiters bounds how many requests of this process wait for one key, the one whose turn is next
// included. More are refused with 429. Default 64.
func WithMaxWaiters(n int) Option { return func(c *config) { c.maxWaiters = n } }

// WithMaxWaitersTotal bounds how many requests of this process wait for any key. More are refused with 503. A request
// waits once its body is there. The bound belongs to New: all that With derives shares it. Default 1024.
func WithMaxWaitersTotal(n int) Option { return func(c *config) { c.maxWaitersTotal = n } }

// WithMaxBodies bounds how many bodies are being read before the wait, in this process. More are refused with 503. It
// belongs to New: all that With derives shares it. Default 1024.
func WithMaxBodies(n int) Option { return func(c *config) { c.maxBodies = n } }

// WithBodyTimeout bounds how long a body takes that is read before the wait, together with WithMaxWait and the deadlines
// that bound the wait. One that takes longer is refused with 408. A middleware that hides the connection (see WithBuffer)
// makes that hold only for a body of which something comes: set http.Server.ReadTimeout, too. Default 5s.
func WithBodyTimeout(d time.Duration) Option { return func(c *config) { c.bodyTimeout = d } }

// WithBodyLimit sets the largest body, in bytes, that is read before the wait, so that the client's leaving is
// noticed. Bodies take up to this times WithMaxWaitersTotal and WithMaxBodies of memory. A request behind Once
// with a larger one is refused with 413. Default 64 KiB.
func WithBodyLimit(bytes int) Option { return func(c *config) { c.bodyLimit = bytes } }

// WithBuffer keeps the handler's answer back, up to that many bytes, until the key was given back and known
// not to have been lost before. A larger answer, and what the handler sends by Hijack, goes out as it comes.
// Flush does nothing meanwhile. Default 0: nothing is kept back.
//
// Where a connection could not be broken after a loss, because something between Lock and net/http has neither Unwrap nor
// SetWriteDeadline, as the writers of gin-contrib/gzip and http.TimeoutHandler, all of the answer is kept back, and one that
// is larger is replaced by a 500. The default is 1 MiB there. Put Lock outside of such a middleware, or give more.
// Once keeps back what WithRecordLimit says, and at least 1 MiB.
func WithBuffer(bytes int) Option { return func(c *config) { c.buffer = bytes } }

// WithSafeMethods turns on that GET, HEAD, OPTIONS and TRACE are locked as well. Of these, requests for a WebSocket or for
// server-sent events, which may last for ever, stay unlocked unless WithMaxHold is given, too. Default: off.
func WithSafeMethods(on bool) Option { return func(c *config) { c.safeMethods = on } }

// WithBusyStatus sets the status of EventBusy, such as http.StatusLocked (423). Default http.StatusConflict (409).
func WithBusyStatus(status int) Option { return func(c *config) { c.busyStatus = status } }

// WithReply replaces the replies of the middleware in gin. The request is aborted already, and status and
// Retry-After are set; call r.Write(c.Writer) for replies that you do not replace.
func WithReply(reply func(c *gin.Context, r Refusal)) Option {
	return func(c *config) {
		c.faults.Check(reply == nil, "WithReply: function is nil")
		c.reply = reply
	}
}

// WithHTTPReply replaces the replies of the middleware in net/http, and in gin where there is no WithReply. Retry-After is
// set; send refusal.Status, or call refusal.Write(w) for replies that you do not replace.
func WithHTTPReply(reply func(w http.ResponseWriter, r *http.Request, refusal Refusal)) Option {
	return func(c *config) {
		c.faults.Check(reply == nil, "WithHTTPReply: function is nil")
		c.httpReply = reply
	}
}

// WithIdempotencyKeyRequired turns on that Once refuses a request without the header Idempotency-Key with 400. Default: off.
func WithIdempotencyKeyRequired(on bool) Option {
	return func(c *config) { c.idempotencyRequired = on }
}

// WithRetention sets how long outcomes of idempotent requests are kept. Default 24h.
func WithRetention(d time.Duration) Option { return func(c *config) { c.retention = d } }

// WithRecord decides which answers of idempotent requests are recorded, by their status, instead of what [Middleware.Once]
// says. After one that is not, the Idempotency-Key is free again.
func WithRecord(records func(status int) bool) Option {
	return func(c *config) {
		c.faults.Check(records == nil, "WithRecord: function is nil")
		c.record = records
	}
}

// WithRecordLimit sets the largest body of an answer, in bytes, that is recorded. Above 60 KiB it takes a record for every
// 60 KiB, and so as many requests to the nodes, one after the other, and as much of their memory. At most 60 MiB. Default
// 1 MiB.
func WithRecordLimit(bytes int) Option { return func(c *config) { c.recordLimit = bytes } }

// framing are headers that net/http makes for each answer, or that belong to one connection.
var framing = []string{"Connection", "Content-Length", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

// WithReplayHeaders sets which headers of an answer are recorded, other than those that were set before Once. Cookies, dates
// and request ids belong to one answer only: leave them out. Default: Content-Type, -Encoding, -Language and -Disposition,
// Location, ETag, Last-Modified, Link.
func WithReplayHeaders(names ...string) Option {
	return func(c *config) {
		for _, name := range names {
			c.faults.Check(name == "" || slices.Contains(framing, http.CanonicalHeaderKey(name)), "WithReplayHeaders: %q belongs to a connection or a length, and not to an answer", name)
		}
		c.replayHeaders = slices.Clone(names)
	}
}

// with returns c changed by opts. A key, or parts of one, replace those of c.
func (c config) with(opts []Option) config {
	key, parts := c.key, c.parts
	c.key, c.parts, c.faults = nil, nil, nil
	for _, set := range opts {
		if set == nil {
			set = func(c *config) { c.faults.Check(true, "an option is nil") }
		}
		set(&c)
	}
	if c.key == nil && c.parts == nil {
		c.key, c.parts = key, parts
	}
	return c
}

// check names every fault. What a has belongs to New.
func (c *config) check(a *admission) {
	f := &c.faults
	f.Check(c.key != nil && len(c.parts) > 0, "ByKey makes all of the key: give no other part of one")
	f.Check(c.key != nil && (c.scope != "" || c.tenant != nil), "ByKey makes all of the key: give neither WithScope nor WithTenant")
	f.Check(c.maxWait < 0, "max wait is %v, must not be negative", c.maxWait)
	f.Check(c.maxHold < 0, "max hold is %v, must not be negative", c.maxHold)
	f.Check(c.maxWaiters < 1, "max waiters is %d, must be at least 1 (not to wait at all: WithMaxWait(0))", c.maxWaiters)
	f.Check(c.maxWaitersTotal < 1, "max waiters in total is %d, must be at least 1", c.maxWaitersTotal)
	f.Check(c.maxBodies < 1, "max bodies is %d, must be at least 1", c.maxBodies)
	f.Check(c.maxWaitersTotal != a.maxWaiters || c.maxBodies > 0 && c.maxBodies != cap(a.bodies), "WithMaxWaitersTotal and WithMaxBodies are options of New, and not of With: all that With derives shares them")
	f.Check(c.bodyLimit < 0, "body limit is %d bytes, must not be negative", c.bodyLimit)
	f.Check(c.bodyTimeout <= 0, "body timeout is %v, must be positive", c.bodyTimeout)
	f.Check(c.buffer < 0, "buffer is %d bytes, must not be negative", c.buffer)
	f.Check(c.busyStatus < 400 || c.busyStatus > 599, "busy status is %d, must be 400 to 599", c.busyStatus)
	f.Check(c.retention < time.Second, "retention is %v, must be at least 1s", c.retention)
	f.Check(c.recordLimit < 0 || c.recordLimit > mostParts*partSize, "record limit is %d bytes, must be 0 to 60 MiB", c.recordLimit)
}
