// Package httplock runs one request at a time per resource, over all replicas of a service, and a request with an
// Idempotency-Key once. It is for gin, and for net/http and the routers that are built on it.
//
//	m, err := httplock.New(locker, "billing", httplock.ByParam("id"), httplock.WithIdempotency(false))
//	…
//	r.PUT("/orders/:id", m.Lock, update)                    // gin
//	mux.Handle("PUT /orders/{id}", m.LockHandler(update))   // net/http
//
// # The rules
//
//  1. A request with a matched route and an unsafe method runs under the lease of its Idempotency-Key, if it has one, and
//     then under that of its resource. GET, HEAD, OPTIONS and TRACE pass.
//  2. Its body is read, up to the limit, before anything is asked for. It waits in a bounded first-come queue, and leaves
//     it with its client, its deadline or the drain.
//  3. The response, headers included, is kept back until the handler has returned and the leases are settled; then it is
//     sent. A lease is settled when it was trusted at the handler's return and its release was sent; the response waits for
//     the confirmation for at most 100 ms. If a lease was lost, a 503 problem is sent instead.
//  4. An answer that outgrows the buffer (1 MiB), or that the handler flushes, becomes a stream: it goes out as it comes,
//     and a loss breaks the connection. Below HTTP/1.1, where the connection cannot be broken, or with an
//     Idempotency-Key, nothing is streamed: the answer is kept back whole, up to 16 MiB, and beyond that refused with 500
//     and a log line that names the route.
//  5. With an Idempotency-Key the response is recorded before it is sent. Responses that ask for another try (429, 503, an
//     error with Retry-After) are not recorded. A response that is too large for a record (60 KiB) or for the buffer, or that
//     broke off before its Content-Length, is recorded without its body: repetitions get 410.
//  6. Every refusal has a status and a problem+json body, and Retry-After where another try may succeed; one function
//     replaces them all ([WithReply]). The statuses are listed at [EventBusy].
//
// # Guarantee
//
// While a handler runs and its context has not ended, no other handler with the same key runs with a context that has not
// ended, in any process that locks on the same nodes. The context ends when a lease is lost, before the key can be
// granted again, with a cause that matches [core.ErrLost]; it also ends when the client leaves, and with its deadline. A client
// that takes an answer for a complete success got it from a handler whose leases were trusted to its end.
//
// # Non-guarantee
//
// A handler that ignores its context continues after a loss; so does a process that is paused between looking at the
// context and acting. Make the database reject a fencing token smaller than the largest it has seen (Run.FencingToken).
//
// # Idempotency-Key
//
// The header is that of draft-ietf-httpapi-idempotency-key-header-07, in quotes or without. Its key belongs to service,
// tenant, method, host and route. A repetition with the same path, query, body and credentials is answered from the record,
// with the header Idempotent-Replayed: true; while the first request is under way, with 409; any other request, with 422.
// A client whose credentials change between repetitions, as tokens do that are renewed, needs [WithTenant]: without, it gets
// that 422, and a new key would make the request run again. Cookies, dates and trailers are not repeated.
//
// The context of such a request does not end when its client leaves, because the client will ask again. Nothing is recorded
// of a request whose handler did not run, or panicked, or whose lease was lost: its effects are open, and a repetition runs
// again. So it does if the process dies before the record, once the leases are over. Store the identity of the request
// beside its effect, in one transaction, and let the database refuse a second one:
//
//	CREATE TABLE payments (…, request char(64) UNIQUE)
//
//	run, _ := httplock.FromContext(c.Request.Context())
//	_, err := tx.Exec("INSERT INTO payments (…, request) VALUES (…, ?)", run.Identity)
//	// if that violates UNIQUE, the payment was made before: read it, and answer with it
//
// If too few nodes confirm the record within a second, the answer is sent, and the record is tried for 30 s more. Records are
// as durable as the Redis servers: if these forget their memory, a repetition runs again (docs/deploy.md says how they keep it).
//
// # How long a request takes
//
// Reading the body takes as long as http.Server.ReadTimeout allows. Then the request waits for up to [WithMaxWait], or for
// three quarters of what its deadline or http.Server.WriteTimeout leaves. An Idempotency-Key, or WithMaxWait(0), adds a
// request to the nodes, which answer within the node timeout of a second; up to five where they fail or disagree. After the
// handler come at most 100 ms, and another second for a record. For a key that is held, Retry-After is the rest of the
// holder's lease. Most keys are free sooner.
//
// # Where to put it
//
// Inside of Recovery, logging, authentication, rate limits and what sets a deadline. A middleware that writes the answer
// after the handler has returned, as error renderers do, goes further in with an Idempotency-Key, or an empty answer is
// recorded; a Recovery does not, or its answer to a panic is recorded. One that compresses may go on either side: further
// out it hides the connection, so that answers are kept back whole.
//
// Set http.Server.ReadTimeout and WriteTimeout. Without the first, a client that stalls its upload keeps a goroutine for
// ever; without the second, a client that does not read a stream keeps the key for ever. Requests take memory for bodies and
// answers: see [WithMemory]. Lock inside the handler (core.Locker.Do) for uploads that are larger than [WithBodyLimit],
// WebSockets, and reads that must be alone.
//
// A key is made of the route's template and the values of its parameters: /files/*path with an empty rest locks "/" in gin
// and is refused with 400 in net/http. If a release of your service renames a parameter or changes the router, the keys
// change: while both releases run, their replicas do not exclude each other. [ByKey] keeps a key, and shares it with other
// routes, tasks and jobs.
//
// With net/http it goes inside the router, around the handler of a route. In chi (v5.3 or later) that is r.With, or r.Use in
// an r.Group. By r.Use in an r.Route("/orders/{id}", …) it knows only /orders/{id}/*, so that all routes in there share
// their keys. A prefix that http.StripPrefix has removed is unknown inside of it.
//
// A request must not take one key twice: a second Lock with the same key is refused with 500. Locks with different keys may
// be nested, in the same order on all routes.
//
// # Shutdown
//
//	server.RegisterOnShutdown(m.Drain) // requests that wait are answered at once
//	…
//	err := errors.Join(server.Shutdown(ctx), m.Close(ctx), locker.Close(ctx)) // ctx with a deadline
//
// # Coming from a middleware of your own
//
// Replicas with the old middleware and replicas with this one do not exclude each other. During a rolling release, let the
// new ones use both, the old one inside: r.PUT("/orders/:id", m.Lock, oldLock, update). Let an old idempotency middleware
// send Retry-After with its 409, or that is recorded as the answer, and remove it when its last record has expired.
package httplock
