package httplock

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/lockkit/lockkit/internal/faults"
)

// An Option configures New or With.
type Option func(*config)

// A config holds the options of a Middleware.
type config struct {
	// The key of a resource has either wholeKey or keyParts.
	wholeKey keyPart
	keyParts []keyPart
	tenant   keyPart

	idempotency bool // requests with an Idempotency-Key run until a response is recorded
	keyRequired bool // requests without an Idempotency-Key are refused
	sender      keyPart
	retention   time.Duration

	maxWait         time.Duration
	maxWaiters      int // per key
	maxWaitersTotal int // for all keys
	bodyLimit       int // in bytes
	memory          int // in bytes
	reply           func(http.ResponseWriter, *http.Request, Refusal)

	// No option sets these, which are in bytes.
	streamThreshold int64 // a larger response is streamed, if it may be
	maxBuffered     int64 // a larger response that must not be streamed fails
	maxRecord       int   // of a larger response, only the status is recorded

	faults faults.List // of options that are invalid with any others
}

var defaults = config{
	retention:  24 * time.Hour,
	maxWait:    5 * time.Second,
	maxWaiters: 64,
	bodyLimit:  1 << 20,
	memory:     64 << 20,
	reply:      func(w http.ResponseWriter, _ *http.Request, r Refusal) { r.Write(w) },

	streamThreshold: 1 << 20,
	maxBuffered:     16 << 20,
	maxRecord:       60 << 10,
}

// ByParam makes the key from path parameters, with the values that the handler gets from c.Param or r.PathValue:
// decoded as the router does it, and otherwise unchanged. If a wildcard matches nothing, as in a request for /files/,
// the value is "/" with gin (/files/*path). With net/http (/files/{path...}) it is empty, and the request is refused
// with 400.
//
// In a pattern of chi or echo that ends with an asterisk, the parameter "*" has the text that the asterisk matches.
//
// The parts of a key add up: ByParam and ByJSON together make a key of both. Parts that are passed to With replace the
// parts of its receiver.
func ByParam(names ...string) Option {
	return func(c *config) {
		c.faults.Check(len(names) == 0, "ByParam: no name")
		for _, name := range names {
			// A common mistake is a name as in the pattern: ":id" or "{id}".
			bare := strings.Trim(name, ":*{}.")
			isBare := name != "" && name == bare
			c.faults.Check(!isBare && name != "*",
				"ByParam(%q): give the name as c.Param and r.PathValue take it: ByParam(%q)", name, bare)
			c.keyParts = append(c.keyParts, paramPart(name))
		}
	}
}

// ByJSON makes the key from a field of a JSON body. The arguments are the path to the field: ByJSON("order", "id")
// reads 42 from {"order":{"id":42}}, and ByJSON("order.id") from {"order.id":42}. The field must be a string, a number
// or a boolean, and not empty; 42 and "42" are one key, 42 and 42.0 two.
//
// Any other field is refused with 400. So is a field that occurs twice, even with different case, because decoders
// differ in which of the two they use. If a middleware further out has read the body, the request is refused with 500.
//
// The handler must read the body as JSON, as c.ShouldBindJSON does, whatever the header Content-Type says. c.ShouldBind
// follows that header, so that a client could lock one resource, and change another.
func ByJSON(path ...string) Option {
	return func(c *config) {
		c.faults.Check(len(path) == 0 || slices.Contains(path, ""),
			"ByJSON: the path to the field is empty, or a name in it")
		c.keyParts = append(c.keyParts, jsonPart(path))
	}
}

// ByFunc makes the key from the result of f. An error or an empty string is refused with 400; the text of the error is
// not sent, and [WithReply] gets it as Refusal.Err. If the request's context has ended, an error is refused with 503
// instead, because f could not look anything up. f may read the body; the handler gets it whole. If f reads a body that
// a middleware further out has read, or panics, the request is refused with 500. In gin, [GinContext] returns the
// context.
func ByFunc(f func(r *http.Request) (string, error)) Option {
	return func(c *config) { c.keyParts = append(c.keyParts, userFunc(c, "ByFunc", f)) }
}

// ByKey makes f return the key itself, without service and route; build it with core.Key. Requests and other users of
// the key (another route or service, a task, a job, core.Locker.Do) exclude each other, and share its fencing tokens. f
// is called as with ByFunc; a key that core refuses is refused with 500. ByKey cannot be combined with other parts of a
// key; [WithTenant] is then part of the Idempotency-Key only.
func ByKey(f func(r *http.Request) (string, error)) Option {
	return func(c *config) { c.wholeKey = userFunc(c, "ByKey", f) }
}

// WithTenant adds the result of f to all keys, so that tenants share nothing. f is called as with ByFunc: put the
// authentication before Lock. An error or an empty tenant is refused with 400. By default there are no tenants.
//
// No key contains the address of the service. If each tenant has its own host, let f look up the tenant by r.Host,
// which has several spellings: in capitals, with the port, and with a dot at the end.
func WithTenant(f func(r *http.Request) (string, error)) Option {
	return func(c *config) { c.tenant = userFunc(c, "WithTenant", f) }
}

// WithIdempotency makes a request with the header Idempotency-Key run until a response is recorded, and repetitions get
// that response; see "Idempotency-Key" in the package document. If required is true, requests without the header are
// refused with 400. By default the header is ignored.
//
// sender returns the name of the user or client that sends a request, such as the user's id. Requests of different
// senders are never repetitions of one another. sender is called as with ByFunc: put the authentication before Lock. An
// error or an empty string is refused with 400. If requests have no senders, pass [NoSender]. A sender that returns the
// result of NoSender does the same for one request, such as a request of an anonymous visitor.
func WithIdempotency(required bool, sender func(r *http.Request) (string, error)) Option {
	return func(c *config) {
		c.idempotency = true
		c.keyRequired = required

		if sender == nil {
			c.faults.Check(true, "WithIdempotency: nothing names the sender: give a function that does, or NoSender")
			return
		}
		c.sender = userFunc(c, "WithIdempotency", sender)
	}
}

// NoSender is the sender function of [WithIdempotency] for requests that have no senders. Requests of two users with
// one Idempotency-Key then have the same Run.Identity, and a handler that looks it up must check which user the row
// belongs to. The credentials (the headers Authorization, Cookie and X-Api-Key, and the client's certificate) are part
// of the fingerprint: a repetition with others, renewed ones included, is refused with 422.
func NoSender(*http.Request) (string, error) { return "", errNoSender }

// WithRetention sets how long the record of an Idempotency-Key is kept, at least a second. The default is 24 hours.
func WithRetention(d time.Duration) Option { return func(c *config) { c.retention = d } }

// WithMaxWait limits the time that a request spends waiting after its body was read: for its key, and for a quorum of
// nodes. The time that the functions of other options take does not count. If d is 0, the request does not wait. If the
// request's context has a deadline, or the http.Server a WriteTimeout, the limit is at most three quarters of the time
// that they leave; see [Arrived]. The default is 5 seconds.
func WithMaxWait(d time.Duration) Option { return func(c *config) { c.maxWait = d } }

// WithMaxWaiters sets how many requests of this process may wait for one key, at least 1; more are refused with 429.
// For all keys together, the limit is 16 times the number that New was given; more are refused with 503. The default is
// 64, and 1,024 for all keys.
func WithMaxWaiters(n int) Option { return func(c *config) { c.maxWaiters = n } }

// WithBodyLimit sets the maximum size of a request's body in bytes. It must not exceed the limit of [WithMemory]. A
// larger body is refused with 413. The default is 1 MiB.
func WithBodyLimit(bytes int) Option { return func(c *config) { c.bodyLimit = bytes } }

// WithMemory limits the bytes that the bodies of requests and the responses that are held back take in this process,
// over all Middlewares that New and With returned together. While they take more, requests are refused with 503 before
// their handlers run. Responses of running handlers are held back in any case: each adds at most 1 MiB, or 16 MiB if it
// is not streamed. The default is 64 MiB.
func WithMemory(bytes int) Option { return func(c *config) { c.memory = bytes } }

// WithReply sets the function that responds to refused requests, including requests that lost a lease. The header
// Retry-After is set, and the status is refusal.Status unless reply writes another one. Call refusal.Write for refusals
// that you do not replace. In gin, [GinContext] returns the context; its Writer is w. The default is Refusal.Write.
// It also responds if reply panics; everything that reply has written is then dropped. Reply must write a status from 400
// on: if the handler has run, [Arrived] does not let another status pass.
func WithReply(reply func(w http.ResponseWriter, r *http.Request, refusal Refusal)) Option {
	return func(c *config) { c.reply = reply }
}

// checkOptions records each option that is out of range, or contradicts another.
func (c *config) checkOptions() {
	c.faults.Check(c.wholeKey != nil && c.keyParts != nil, "ByKey makes all of the key: give no other part of it")
	c.faults.Check(c.retention < time.Second, "a retention of %v: must be at least 1s", c.retention)
	c.faults.Check(c.maxWait < 0, "a max wait of %v: must not be negative", c.maxWait)
	c.faults.Check(c.maxWaiters < 1,
		"max waiters is %d: must be at least 1; if none is to wait, give WithMaxWait(0)", c.maxWaiters)
	c.faults.Check(c.bodyLimit < 0, "a body limit of %d bytes: must not be negative", c.bodyLimit)
	c.faults.Check(c.memory < c.bodyLimit,
		"a memory of %d bytes is less than one body may take, %d", c.memory, c.bodyLimit)
	c.faults.Check(c.reply == nil, "WithReply: the function is nil")
}

// hasKey reports whether an option makes the key of a resource.
func (c *config) hasKey() bool { return c.wholeKey != nil || c.keyParts != nil }
