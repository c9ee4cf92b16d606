// Package httplock lets one request at a time through to a gin handler, per resource, across all replicas of
// a server. It also replays the first outcome of requests that carry an Idempotency-Key.
//
//	byID, err := httplock.New(locker, httplock.ByParam("id"))
//	…
//	r.PUT("/orders/:id", byID.Lock, update)
//
// # Guarantee
//
// While a handler behind [Middleware.Lock] runs and its c.Request.Context() has not ended, no other handler
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
// yet all with it. With [WithBuffer] nothing is sent before the key was given back.
//
// A request with an Idempotency-Key that was answered is answered the same again within the retention, by
// any replica, and its handler does not run. See [WithIdempotencyKey].
//
// # Non-guarantee
//
// A handler that does not look at its context is not stopped by the loss of its lease, and a process can be
// paused between looking and writing: have the database refuse a smaller fencing token than it has seen. The
// same goes for an idempotent request: a process that dies between its effect and the record leaves it to be
// done again.
//
// Requests are served in order of arrival within a process. Between processes, it is the order of their clocks
// and no more than that: see guarantee 9 in docs/guarantees.md.
//
// # Which requests are locked
//
// Those of a route that gin has matched, with a method other than GET, HEAD, OPTIONS and TRACE, unless
// [WithSafeMethods] is given. Two routes share no key unless [WithScope] says so, whatever their parameters
// are. Methods of one route do share: PUT and DELETE of one order exclude each other. A parameter that is
// empty is answered with 400, and never makes a key of its own. With [ByKey] a route shares its keys with whatever else
// locks them: other routes, tasks, jobs, [core.Locker.Do].
//
// # Where to put it
//
// After Recovery, logging, authentication and rate limits, so that nobody waits who would be refused; after
// a middleware that sets a deadline, so that the wait heeds it. Nested Locks on one key take it once. Nested
// Locks on several keys must take them in the same order on all routes, or requests wait for each other
// until their time is up.
//
// # Bodies
//
// net/http notices that a client has gone only once the request's body is read. Lock therefore reads the
// body before it waits, up to [WithBodyLimit], and hands it on. Over HTTP/1, a request with a larger body waits
// to the end of its time even if its client has gone. Set http.Server.ReadTimeout: a body that never comes
// keeps a place among those that wait.
//
// # Events
//
// What was decided is counted with [core.Locker.Event] under the source "httplock" and the route's template;
// the kinds are the constants Event….
package httplock
