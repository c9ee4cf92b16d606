// Package httplock lets one request at a time through to a handler, per resource, across all replicas of a service, and
// has a request that carries an Idempotency-Key run once. It is for gin, and for net/http and the routers that are built
// on it.
//
//	m, err := httplock.New(locker, "billing", httplock.ByParam("id"))
//	…
//	r.PUT("/orders/:id", m.Lock, update)                    // gin
//	r.POST("/orders/:id/payments", m.Once, m.Lock, pay)
//
//	mux.Handle("PUT /orders/{id}", m.LockHandler(update))   // net/http
//	mux.Handle("POST /orders/{id}/payments", m.OnceHandler(m.LockHandler(pay)))
//
// What is said here of Lock and Once holds for both entrances.
//
// # Guarantee
//
// While a handler behind [Middleware.Lock] runs and its request's context has not ended, no other handler
// behind a Lock with the same key runs with a context that has not ended, in any process that locks on the
// same nodes. The context carries the lease ([core.FromContext]) and so the fencing token; it ends when the
// lease is lost, before anybody else can have the key, with a cause that matches [core.ErrLost].
//
// In gin it is the context of the request: pass c.Request.Context() on, to core.FromContext and to the database. c itself
// has neither the lease nor an end, unless its Engine has ContextWithFallback.
//
// A request that waits leaves the queue when its client goes away, when its time is up or when the server
// drains; where the queue is full it does not enter. The key is given back when the handler has returned, by
// whatever way; the answer waits for that, but for no more than 100 ms.
//
// A request whose lease was lost before its handler returned is answered with 503 if nothing of the handler's
// answer was sent, and has its connection broken otherwise, so that no client takes for complete what is not
// yet all with it. What a handler has written counts as sent, also where net/http still has it. Where a
// connection cannot be broken nothing is sent before the handler has returned. With [WithBuffer] nothing is
// sent before the key was given back.
//
// A request with an Idempotency-Key that was answered is answered the same again within the retention, by
// any replica, and its handler does not run. See [Middleware.Once].
//
// # Non-guarantee
//
// A handler that does not look at its context is not stopped by the loss of its lease, and a process can be
// paused between looking and writing: have the database refuse a smaller fencing token than it has seen.
//
// Nor does an idempotent request have its effect exactly once: a process that dies, or loses its lease, between the effect
// and the record leaves it to be done again. Store the request's identity beside the effect, in one transaction, and let the
// database refuse a second one:
//
//	CREATE TABLE payments (…, request char(64) UNIQUE)
//
//	run, _ := httplock.FromContext(c.Request.Context())
//	_, err := tx.Exec("INSERT INTO payments (…, request) VALUES (…, ?)", run.Identity)
//	// if that violates UNIQUE, the payment was made before: read it, and answer with it
//
// Requests are served in order of arrival within a process. Between processes, it is the order of their clocks
// and no more than that: see guarantee 9 in docs/guarantees.md.
//
// # Replies
//
// Refusals are application/problem+json, unless [WithReply] or [WithHTTPReply] replaces them. The error of a key function, and
// why a request was refused, are in the [Refusal] that they get.
//
//	somebody else had the key for all of the wait              409 (WithBusyStatus: another, such as 423)
//	somebody has completed the key for good                    409
//	too many wait for this key; for any; the server drains     429; 503; 503
//	no quorum of lock nodes                                    503
//	the lease was lost while the handler ran                   503, or a broken connection if the answer had begun: never a
//	                                                           clean 200, also behind gzip
//	the body did not come in time; is too large; breaks off    408; 413; 400
//	what makes the key is missing, or is there twice           400
//	nothing makes a key on this route: see c.Errors, the log   500
//	the answer is too large to be kept back; to be repeated    500; 410
//	Idempotency-Key missing or malformed; in flight;           400; 409;
//	of another request or user                                 422
//
// Retry-After of a key that is held is what is left of the holder's lease, up to the TTL, because nobody knows how long
// the handler takes: most keys are free sooner. A reply of your own can say less.
//
// An answer that asks for another try (429, 503, or an error with Retry-After) is not recorded for its Idempotency-Key. A
// repetition with other credentials is refused: where clients renew their tokens, [WithTenant] says whom a token stands for.
//
// # Which requests are locked
//
// Those of a route that the router has matched, with a method other than GET, HEAD, OPTIONS and TRACE, unless
// [WithSafeMethods] is given. Two routes share no key unless [WithScope] says so, whatever their parameters
// are; nor do two services. Methods of one route do share: PUT and DELETE of one order exclude each other. A parameter
// that is empty is answered with 400, and never makes a key of its own. With [ByKey] a route shares its keys with whatever
// else locks them: other routes and services, tasks, jobs, [core.Locker.Do].
//
// # Where to put it
//
// After Recovery, logging, authentication and rate limits, so that nobody waits who would be refused, and [WithTenant] knows
// the tenant; after a middleware that sets a deadline, so that the wait heeds it; outside of one that compresses answers,
// because what goes through that is kept back, and must not be large: see [WithBuffer]. Once stands before Lock, so that a
// repetition is answered without waiting. Nested Locks on one key take it once, if their Middlewares have the same
// Locker; if they have two, the inner one waits for the outer one until its time is up. Nested Locks on several keys must
// take them in the same order on all routes, or requests wait for each other until their time is up.
//
// With net/http it goes inside the router, around the handler of a route. In chi (v5.3 or newer) that is r.With, or r.Use
// in an r.Group. By r.Use in an r.Route("/orders/{id}", …) it knows only what was matched so far, /orders/{id}/*, so that
// all routes in there share their keys. What http.StripPrefix has removed is unknown inside of it: routes that differ in
// nothing else share keys, and Idempotency-Keys.
//
// # Bodies
//
// net/http notices that a client has gone only once the request's body is read. Lock therefore reads the
// body before it waits, up to [WithBodyLimit] and for at most [WithBodyTimeout], and hands it on. Over HTTP/1, a request
// with a larger body waits to the end of its time even if its client has gone.
//
// # Shutdown
//
//	server.RegisterOnShutdown(m.Drain) // who waits is answered at once
//	…
//	err := errors.Join(server.Shutdown(ctx), m.Close(ctx), locker.Close(ctx)) // ctx with a deadline
//
// # Coming from a middleware of one's own
//
// Replicas with the old middleware and replicas with this one do not exclude each other. While both run, as in a rolling
// release, have the new ones use both, the old one inside:
//
//	r.PUT("/orders/:id", m.Lock, oldLock, update)
//	r.POST("/orders/:id/payments", m.Once, m.Lock, oldIdempotency, pay)
//
// Remove the old lock with the next release, and the old idempotency middleware when its last record has expired. Until then
// what it answers is recorded as the outcome, also a 409 because another replica is at work: have it send a
// Retry-After with that, or call [Discard].
//
// What is different: a request waits for its key for up to 5 s ([WithMaxWait]; with 0 it is refused at once). There is no
// expiry to choose, since the lease is renewed until the handler returns; if it is lost, the handler's context
// ends. What a process that dies leaves behind, keys and Idempotency-Keys in flight, is free within the TTL.
//
// # Events
//
// What was decided is counted with [core.Locker.Event] under the source "httplock" and the route's template;
// the kinds are the constants Event….
package httplock
