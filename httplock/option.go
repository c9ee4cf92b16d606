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

	maxWait, maxHold            time.Duration
	maxWaiters, maxWaitersTotal int
	bodyLimit, buffer           int
	safeMethods                 bool
	busyStatus                  int
	reply                       func(*gin.Context, Refusal)

	idempotency   idempotency
	retention     time.Duration
	replayHeaders []string

	faults faults.List // of single options
}

type idempotency uint8

const (
	idempotencyOff idempotency = iota
	idempotencyOptional
	idempotencyRequired
)

func defaults() config {
	return config{
		maxWait:    5 * time.Second,
		maxWaiters: 64, maxWaitersTotal: 1024,
		bodyLimit:     64 << 10,
		busyStatus:    http.StatusConflict,
		reply:         func(c *gin.Context, r Refusal) { r.Write(c) },
		retention:     24 * time.Hour,
		replayHeaders: []string{"Content-Type", "Content-Encoding", "Content-Language", "Content-Disposition", "Location", "ETag", "Last-Modified", "Link"},
	}
}

// WithMaxWait bounds how long a request waits for its key. 0: it does not wait at all. It waits for less where
// its context has a deadline or the http.Server a WriteTimeout: three quarters of what they leave, so that
// there is time for the handler. Default 5s.
func WithMaxWait(d time.Duration) Option { return func(c *config) { c.maxWait = d } }

// WithMaxHold ends the lease this long after it was granted, so that a handler that is stuck loses its key:
// see core.MaxHold. Default 0: it keeps it until it returns.
func WithMaxHold(d time.Duration) Option { return func(c *config) { c.maxHold = d } }

// WithMaxWaiters bounds how many requests of this process wait for one key, the one whose turn is next
// included. More are refused with 429. Default 64.
func WithMaxWaiters(n int) Option { return func(c *config) { c.maxWaiters = n } }

// WithMaxWaitersTotal bounds how many requests of this process wait for any key. More are refused with 503.
// It belongs to New: all that With derives shares it. Default 1024.
func WithMaxWaitersTotal(n int) Option { return func(c *config) { c.maxWaitersTotal = n } }

// WithBodyLimit sets the largest body, in bytes, that is read before the wait, so that the client's leaving is
// noticed. Bodies of requests that wait take up to this times WithMaxWaitersTotal of memory. An idempotent
// request with a larger one is refused with 413. Default 64 KiB.
func WithBodyLimit(bytes int) Option { return func(c *config) { c.bodyLimit = bytes } }

// WithBuffer keeps the handler's answer back, up to that many bytes, until the key was given back and known
// not to have been lost before. A larger answer, and what the handler sends by Hijack, goes out as it comes.
// Flush does nothing meanwhile. Default 0: nothing is kept back, unless the request is idempotent: then 1 MiB.
func WithBuffer(bytes int) Option { return func(c *config) { c.buffer = bytes } }

// WithSafeMethods turns on that GET, HEAD, OPTIONS and TRACE are locked as well. Of these, requests for a WebSocket or for
// server-sent events, which may last for ever, stay unlocked unless WithMaxHold is given, too. Default: off.
func WithSafeMethods(on bool) Option { return func(c *config) { c.safeMethods = on } }

// WithBusyStatus sets the status of EventBusy, such as http.StatusLocked (423). Default http.StatusConflict (409).
func WithBusyStatus(status int) Option { return func(c *config) { c.busyStatus = status } }

// WithReply replaces the replies of the middleware. The request is aborted already, and status and
// Retry-After are set; call r.Write for replies that you do not replace.
func WithReply(reply func(c *gin.Context, r Refusal)) Option {
	return func(c *config) { c.reply = reply }
}

// WithIdempotencyKey heeds the request header Idempotency-Key (draft-ietf-httpapi-idempotency-key-header-07)
// where a client sends it: the first request with a key runs, and its outcome, whatever the status, is recorded
// before it is sent. A repetition is answered from the record, with the header Idempotent-Replayed: true; while
// the first is under way, with 409; if it is a different request, with 422. A key belongs to a tenant, a method
// and a route: where users must not see each other's answers, give WithTenant. Nothing is recorded of a
// handler that panicked or lost its lease: its effects are open, and a repetition runs again. So it does after a crash,
// once the lease is over (core.TTL).
//
// The record has the status, the headers of WithReplayHeaders and the body. Of an answer above 60 KiB it has no
// body: the replay has none either, and says so with the header Idempotent-Body: omitted.
func WithIdempotencyKey() Option { return func(c *config) { c.idempotency = idempotencyOptional } }

// WithIdempotencyKeyRequired is WithIdempotencyKey where a request without the header is refused with 400.
func WithIdempotencyKeyRequired() Option {
	return func(c *config) { c.idempotency = idempotencyRequired }
}

// WithRetention sets how long outcomes of idempotent requests are kept. Default 24h.
func WithRetention(d time.Duration) Option { return func(c *config) { c.retention = d } }

// WithReplayHeaders sets which headers of an answer are recorded. Cookies, dates and request ids belong to one
// answer only: leave them out. Default: Content-Type, -Encoding, -Language and -Disposition, Location, ETag,
// Last-Modified, Link.
func WithReplayHeaders(names ...string) Option {
	return func(c *config) { c.replayHeaders = slices.Clone(names) }
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

// check names every fault. total is how many may wait in all.
func (c *config) check(total int) {
	f := &c.faults
	f.Check(c.key == nil && len(c.parts) == 0 && c.idempotency == idempotencyOff,
		"nothing makes a key: give ByKey, ByParam, ByHeader, ByQuery or ByFunc, or WithIdempotencyKey")
	f.Check(c.key != nil && len(c.parts) > 0, "ByKey makes all of the key: give no other part of one")
	f.Check(c.key != nil && (c.scope != "" || c.tenant != nil), "ByKey makes all of the key: give neither WithScope nor WithTenant")
	f.Check(c.maxWait < 0, "max wait is %v, must not be negative", c.maxWait)
	f.Check(c.maxHold < 0, "max hold is %v, must not be negative", c.maxHold)
	f.Check(c.maxWaiters < 1, "max waiters is %d, must be at least 1 (not to wait at all: WithMaxWait(0))", c.maxWaiters)
	f.Check(c.maxWaitersTotal < 1, "max waiters in total is %d, must be at least 1", c.maxWaitersTotal)
	f.Check(c.maxWaitersTotal != total, "max waiters in total is set by New for all")
	f.Check(c.bodyLimit < 0, "body limit is %d bytes, must not be negative", c.bodyLimit)
	f.Check(c.buffer < 0, "buffer is %d bytes, must not be negative", c.buffer)
	f.Check(c.busyStatus < 400 || c.busyStatus > 599, "busy status is %d, must be 400 to 599", c.busyStatus)
	f.Check(c.reply == nil, "reply is nil")
	f.Check(c.retention < time.Second, "retention is %v, must be at least 1s", c.retention)
}
