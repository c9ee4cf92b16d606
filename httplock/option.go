package httplock

import (
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"time"

	"github.com/gin-gonic/gin"
)

// An Option configures New or With.
type Option interface{ apply(*config) }

type option func(*config)

func (o option) apply(c *config) { o(c) }

// config is what the options said.
type config struct {
	parts  []part
	tenant func(*gin.Context) (string, error)
	scope  string

	maxWait, maxHold time.Duration
	perKey, total    int
	bodyLimit        int
	buffer           int
	safeMethods      bool
	busyStatus       int
	reply            func(*gin.Context, Refusal)

	idempotency   idempotency
	retention     time.Duration
	replayHeaders []string

	faults []error // of single options
}

type idempotency uint8

const (
	idempotencyOff idempotency = iota
	idempotencyOptional
	idempotencyRequired
)

func defaults() config {
	return config{
		maxWait: 5 * time.Second,
		perKey:  64, total: 1024,
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
func WithMaxWait(d time.Duration) Option { return option(func(c *config) { c.maxWait = d }) }

// WithMaxHold ends the lease this long after it was granted, so that a handler that is stuck loses its key:
// see core.WithMaxHold. Default 0: it keeps it until it returns.
func WithMaxHold(d time.Duration) Option { return option(func(c *config) { c.maxHold = d }) }

// WithMaxWaiting bounds how many requests of this process wait for one key, the one whose turn is next
// included. More are refused with 429. Default 64.
func WithMaxWaiting(n int) Option { return option(func(c *config) { c.perKey = n }) }

// WithMaxWaitingTotal bounds how many requests of this process wait for any key. More are refused with 503.
// It belongs to New: all that With derives shares it. Default 1024.
func WithMaxWaitingTotal(n int) Option { return option(func(c *config) { c.total = n }) }

// WithBodyLimit sets the largest body, in bytes, that is read before the wait, so that the client's leaving is
// noticed. Bodies of requests that wait take up to this times WithMaxWaitingTotal of memory. An idempotent
// request with a larger one is refused with 413. Default 64 KiB.
func WithBodyLimit(bytes int) Option { return option(func(c *config) { c.bodyLimit = bytes }) }

// WithBuffer keeps the handler's answer back, up to that many bytes, until the key was given back and known
// not to have been lost before. A larger answer, and what the handler sends by Hijack, goes out as it comes.
// Flush does nothing meanwhile. Default 0: nothing is kept back, unless the request is idempotent: then 1 MiB.
func WithBuffer(bytes int) Option { return option(func(c *config) { c.buffer = bytes }) }

// WithSafeMethods locks GET, HEAD, OPTIONS and TRACE as well. Of these, requests for a WebSocket or for server-sent
// events, which may last for ever, stay unlocked unless WithMaxHold is given, too.
func WithSafeMethods() Option { return option(func(c *config) { c.safeMethods = true }) }

// WithBusyStatus sets the status of KindBusy, such as http.StatusLocked (423). Default http.StatusConflict (409).
func WithBusyStatus(status int) Option { return option(func(c *config) { c.busyStatus = status }) }

// WithReply replaces the replies of the middleware. The request is aborted already, and status and
// Retry-After are set; what reply does not care for it hands to Refusal.Write.
func WithReply(reply func(c *gin.Context, r Refusal)) Option {
	return option(func(c *config) { c.reply = reply })
}

// WithIdempotencyKey heeds the request header Idempotency-Key (draft-ietf-httpapi-idempotency-key-header-07)
// where a client sends it: the first request with a key runs, and its outcome, whatever the status, is recorded
// before it is sent. A repetition is answered from the record, with the header Idempotent-Replayed: true; while
// the first is under way, with 409; if it is a different request, with 422. A key belongs to a tenant, a method
// and a route: where users must not see each other's answers, give WithTenant. Nothing is recorded of a handler that panicked or lost its lease: its effects are open, and a
// repetition runs again. So it does after a crash, once the lease is over (core.WithTTL).
//
// The record has the status, the headers of WithReplayHeaders and the body. Of an answer above 60 KiB it has no
// body: the replay has none either, and says so with the header Idempotent-Body: omitted.
func WithIdempotencyKey() Option {
	return option(func(c *config) { c.idempotency = idempotencyOptional })
}

// WithIdempotencyKeyRequired is WithIdempotencyKey where a request without the header is refused with 400.
func WithIdempotencyKeyRequired() Option {
	return option(func(c *config) { c.idempotency = idempotencyRequired })
}

// WithRetention sets how long outcomes of idempotent requests are kept. Default 24h.
func WithRetention(d time.Duration) Option { return option(func(c *config) { c.retention = d }) }

// WithReplayHeaders sets which headers of an answer are recorded. Cookies, dates and request ids belong to one
// answer only: leave them out. Default: Content-Type, -Encoding, -Language and -Disposition, Location, ETag,
// Last-Modified, Link.
func WithReplayHeaders(names ...string) Option {
	canonical := make([]string, len(names))
	for i, name := range names {
		canonical[i] = textproto.CanonicalMIMEHeaderKey(name)
	}
	return option(func(c *config) { c.replayHeaders = canonical })
}

// with returns c changed by opts. Parts of the key replace those of c.
func (c config) with(opts []Option) config {
	parts := c.parts
	c.parts, c.faults = nil, nil
	for _, o := range opts {
		if o == nil {
			c.faults = append(c.faults, errors.New("an option is nil"))
			continue
		}
		o.apply(&c)
	}
	if c.parts == nil {
		c.parts = parts
	}
	return c
}

func (c *config) check() error {
	faults := c.faults
	bad := func(is bool, format string, args ...any) {
		if is {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	bad(len(c.parts) == 0 && c.idempotency == idempotencyOff,
		"nothing makes a key: give ByParam, ByHeader, ByQuery or ByFunc, or WithIdempotencyKey")
	bad(c.maxWait < 0, "max wait is %v, must not be negative", c.maxWait)
	bad(c.maxHold < 0, "max hold is %v, must not be negative", c.maxHold)
	bad(c.perKey < 1, "max waiting is %d, must be at least 1 (not to wait at all: WithMaxWait(0))", c.perKey)
	bad(c.total < 1, "max waiting in total is %d, must be at least 1", c.total)
	bad(c.bodyLimit < 0, "body limit is %d bytes, must not be negative", c.bodyLimit)
	bad(c.buffer < 0, "buffer is %d bytes, must not be negative", c.buffer)
	bad(c.busyStatus < 400 || c.busyStatus > 599, "busy status is %d, must be 400 to 599", c.busyStatus)
	bad(c.reply == nil, "reply is nil")
	bad(c.retention < time.Second, "retention is %v, must be at least 1s", c.retention)
	return errors.Join(faults...)
}
