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
// A request that waits leaves the queue when its client goes away, when its time is up or when the server
// drains; where the queue is full it does not enter. The key is given back when the handler has returned, by
// whatever way; the answer waits for that, but for no more than 100 ms.
//
// A request whose lease was lost before its handler returned is answered with 503 if nothing of the handler's
// answer was sent, and has its connection broken otherwise, so that no client takes for complete what is not
// yet all with it. Where a connection cannot be broken nothing is sent before the handler has returned. With
// [WithBuffer] nothing is sent before the key was given back.
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
// After Recovery, logging, authentication and rate limits, so that nobody waits who would be refused; after
// a middleware that sets a deadline, so that the wait heeds it; outside of one that compresses answers. Once stands before
// Lock, so that a repetition is answered without waiting. Nested Locks on one key take it once. Nested
// Locks on several keys must take them in the same order on all routes, or requests wait for each other
// until their time is up. With net/http it goes inside the router, around the handler of a route.
//
// # Bodies
//
// net/http notices that a client has gone only once the request's body is read. Lock therefore reads the
// body before it waits, up to [WithBodyLimit] and for at most [WithBodyTimeout], and hands it on. Over HTTP/1, a request
// with a larger body waits to the end of its time even if its client has gone.
//
// # Events
//
// What was decided is counted with [core.Locker.Event] under the source "httplock" and the route's template;
// the kinds are the constants Event….
package httplock
