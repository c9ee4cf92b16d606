// Package httplock runs one request at a time per resource, over all replicas of a service, and runs a request with an
// Idempotency-Key only once. It is for gin, and for net/http and the routers that are built on it.
//
//	m, err := httplock.New(locker, "billing", httplock.ByParam("id"), httplock.WithIdempotency(false, httplock.NoSender)) // Idempotency-Key: honoured, not required
//	…
//	r.PUT("/orders/:id", m.Lock, update)                    // gin
//	mux.Handle("PUT /orders/{id}", m.LockHandler(update))   // net/http
//
// # The rules
//
//  1. A request with a matched route runs under up to two leases. The first is on its Idempotency-Key, if it has one
//     ([WithIdempotency]). The second is on its resource, if the route has one ([ByParam], [ByJSON], [ByFunc], [ByKey]).
//     GET, HEAD, OPTIONS and TRACE requests pass without a lease.
//  2. The body of a request is read, up to the limit ([WithBodyLimit]), before any lease is asked for. The request then
//     waits for its resource in a bounded first-come queue. It stops waiting when its client leaves, its time to wait is
//     over ([WithMaxWait], 5 s by default), or [Middleware.Drain] is called. If the resource is still held when the time
//     is over, the request is refused with 409. The documentation of [EventBusy] lists the statuses of all refusals.
//  3. The response, headers included, is held back until the handler has returned. If no lease has been lost by then, the
//     leases are released. The response is sent once the nodes have confirmed the release, or after 100 ms without their
//     answer. If a lease was lost, a refusal with status 503 is sent instead.
//  4. A response that is larger than 1 MiB, or that the handler flushes, is streamed: it is sent while the handler writes
//     it, and the loss of a lease breaks the connection. A response is not streamed if the request is older than HTTP/1.1
//     or has an Idempotency-Key, or if another middleware hides the connection (see Where to put it). It is then held back
//     whole, up to 16 MiB. A larger one is refused with 500, and the log names the route.
//  5. With an Idempotency-Key, the response is recorded before it is sent. A response that asks for another try (429, 503,
//     an error with Retry-After) is not recorded. If a response is larger than 60 KiB, or shorter than its
//     Content-Length, only its status is recorded, and repetitions get 410.
//  6. Every refusal has a status and a body of type application/problem+json, and Retry-After where another try may
//     succeed. [WithReply] sets a function that writes refusals instead.
//
// # Guarantee
//
// At most one handler per key has a context that has not ended, in all processes that lock on the same nodes. The context
// ends when a lease is lost, before the key can be granted again, with a cause that matches [core.ErrLost]. It also ends
// with the deadline of the request and, without an Idempotency-Key, when the client leaves. If a client gets a complete
// successful response, no lease was lost before the handler returned.
//
// # Non-guarantee
//
// A handler that ignores its context continues after a loss. So does a process that is paused between looking at the
// context and acting. Make the database reject a fencing token smaller than the largest it has seen (Run.FencingToken).
//
// # Idempotency-Key
//
// The header is that of draft-ietf-httpapi-idempotency-key-header-07. The value may be quoted or not. The same value is a
// different key in another service, tenant, method, host or route.
//
// A repetition with the same path, query, body and credentials is answered from the record, with the header
// Idempotent-Replayed: true. Cookies, dates and trailers are not repeated. While the first request runs, every other
// request with the key gets 409. Afterwards, a different request with the key gets 422. If credentials change between
// repetitions, for example because tokens are renewed, use [WithTenant]. Otherwise a repetition gets 422, and a client that
// then uses a new key makes the request run again.
//
// The context of a request with an Idempotency-Key does not end when its client leaves, because the client will ask again.
// Nothing is recorded if the handler did not run, or panicked, or if a lease was lost. A repetition then runs again,
// whatever the effects of the first handler were. If the process dies before the response is recorded, a repetition runs
// again once the leases have ended. Store the identity of the request beside its effect, in one transaction, and let the
// database refuse a second row with that identity:
//
//	CREATE TABLE payments (…, request char(64) UNIQUE)
//
//	run, _ := httplock.FromContext(c.Request.Context())
//	_, err := tx.Exec("INSERT INTO payments (…, request) VALUES (…, ?)", run.Identity)
//	// if that violates UNIQUE, the payment was made before: read it, and respond with it
//
// If too few nodes confirm the record within a second, the response is sent, and the middleware tries to write the record
// for 30 s more, or until Drain. Records are as durable as the Redis servers: if these lose their data, a repetition runs
// again (docs/deploy.md says how to prevent that).
//
// # How long a request takes
//
//	reading the body                         http.Server.ReadTimeout
//	waiting for the resource                 WithMaxWait; less if the request has a deadline, or the server a WriteTimeout
//	the handler                              its own time
//	releasing the leases                     100 ms
//	recording, with an Idempotency-Key       1 s
//
// These are the longest times. If a request has a deadline, or the server has a WriteTimeout, a wait takes at most three
// quarters of the time that is left when the wait begins. Waiting for the resource includes taking the Idempotency-Key's
// lease.
//
// Without a resource, or with WithMaxWait(0), a request does not wait for others. Each lease still takes one to three
// requests to the nodes, or up to 15 if several replicas ask at the same moment. Each of these requests takes at most the
// node timeout, which is a tenth of the TTL but at most 1 s.
//
// If a key is held, Retry-After is the rest of the holder's lease, although most keys are free sooner.
//
// # Where to put it
//
// Put the middleware inside Recovery, logging, authentication and rate limits, and inside whatever sets a deadline.
// Recovery turns a panic into a response. If it did so inside this middleware, that response would be recorded for the
// Idempotency-Key. Put middleware that writes the response after the handler has returned, such as an error renderer,
// inside this one. Otherwise an empty response would be recorded.
//
// Compression may go on either side. If it is outside, its ResponseWriter hides the connection, so responses are never
// streamed (rule 4).
//
// Set http.Server.ReadTimeout and WriteTimeout. Without ReadTimeout, a client that stalls its upload keeps a goroutine for
// ever. Without WriteTimeout, a client that does not read a stream keeps the key for ever. Bodies and responses that are
// held back take memory: see [WithMemory]. For uploads that are larger than [WithBodyLimit], for WebSockets, and for reads
// that need a lock, lock inside the handler (core.Locker.Do).
//
// A key is made of the route's template and the values of its parameters. If a release of your service renames a parameter
// or changes the router, the keys change: while both releases run, their replicas do not exclude each other. A key made by
// [ByKey] stays the same, and can be shared with other routes, tasks and jobs.
//
// With net/http the middleware goes inside the router, around the handler of a route, because it must see the route's whole
// template. In chi (v5.3 or later) use r.With, or r.Use in an r.Group. With r.Use in an r.Route, or behind
// http.StripPrefix, it sees a part of the template only, and different routes share their keys.
//
// A request must not take one key twice: a second Lock with the same key is refused with 500. Locks with different keys may
// be nested, in the same order on all routes; for those of two parameters of one route see [ByParam].
//
// # Shutdown
//
//	server.RegisterOnShutdown(m.Drain) // requests that wait are refused at once
//	…
//	err := errors.Join(server.Shutdown(ctx), m.Close(ctx), locker.Close(ctx)) // ctx with a deadline
//
// Coming from a middleware of your own: docs/migrate.md.
package httplock
