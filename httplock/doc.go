// Package httplock runs one request at a time per resource, over all replicas of a service. A request with an
// Idempotency-Key runs until it has an outcome, and not again. The package is for gin, and for net/http and the routers
// that are built on it.
//
//	m, err := httplock.New(locker, "billing",
//		httplock.ByParam("id"),
//		httplock.WithIdempotency(false, user)) // Idempotency-Key: honoured, not required
//	…
//	r.PUT("/orders/:id", m.Lock, update)                    // gin
//	mux.Handle("PUT /orders/{id}", m.LockHandler(update))   // net/http
//
// # The rules
//
//  1. A request with a matched route runs under up to two leases. The first is on its Idempotency-Key, if it has one
//     ([WithIdempotency]). The second is on its resource, if the route has one ([ByParam], [ByJSON], [ByFunc],
//     [ByKey]). GET, HEAD, OPTIONS and TRACE requests, and those without a key, pass without a lease, and Lock does
//     nothing to them.
//  2. The body of a request is read, up to the limit ([WithBodyLimit]), before any lease is asked for. If the request
//     has an Idempotency-Key that is recorded, it gets the record. Otherwise it waits for its resource in a bounded
//     first-come queue. It stops waiting when its client leaves, its time to wait is over ([WithMaxWait], 5 s by
//     default), or [Middleware.Drain] is called. If the resource is still held when the time is over, the request is
//     refused with 409. The documentation of [EventBusy] lists the statuses of all refusals.
//  3. The response, headers included, is held back until the handler has returned. If no lease has been lost by then,
//     the leases are released. The response is sent once the nodes have confirmed the release, or after 100 ms without
//     their answer. If a lease was lost, a refusal with status 503 is sent instead.
//  4. A response that is larger than 1 MiB, or that the handler flushes, is streamed: it is sent while the handler
//     writes it. If a lease is lost, the middleware takes the connection over and closes it, or resets the HTTP/2
//     stream. A response is not streamed if the request is older than HTTP/1.1, is a CONNECT request, or has an
//     Idempotency-Key, if its status is that of a redirect or forbids a body, or if the middleware cannot reach the
//     server's own connection (see Where to put it). It is then held back whole, up to 16 MiB. A larger one is refused
//     with 500, and the log names the route.
//  5. With an Idempotency-Key, the response is recorded before it is sent, unless it invites a retry (see Recorded
//     responses). If it is larger than 60 KiB, only its status is recorded, and repetitions get 410.
//  6. Every refusal has a status and a body of type application/problem+json, and Retry-After where another try may
//     succeed. [WithReply] sets a function that writes refusals instead.
//
// # Guarantee
//
// At most one handler per key has a live context, in all processes that use the same nodes. The context ends when a
// lease is lost, before the key can be granted again, with a cause that matches [core.ErrLost]. It also ends with the
// deadline of the request and, without an Idempotency-Key, when the client leaves. If a client gets a complete
// successful response, no lease was lost before the handler returned. This needs [Arrived] around the server, unless the
// handler writes only to the ResponseWriter that it is given, and no middleware begins a success before Lock, returns
// before its handlers, turns a refusal into a success, or sends a stream with a Content-Length, with a
// Transfer-Encoding, or with the status of a redirect or of a response without a body.
//
// A lease that an operator revokes is lost when a node says so to a renewal, or a quorum of them to the release, within
// the 100 ms of rule 3.
//
// # Non-guarantee
//
// A handler that ignores its context continues after a loss. So does a process that is paused between looking at the
// context and acting. Make the database reject a fencing token smaller than the largest it has seen (Run.FencingToken).
//
// A handler must not end its own lease, which [core.FromContext] returns. The innermost lease and the innermost permit
// (core/semaphore) around Lock count as leases of the request. Others count if the request's context ends with them: if
// it has ended with a cause that matches [core.ErrLost].
//
// A handler must write to the ResponseWriter that it is given. If it writes to a ResponseWriter that a middleware further
// out has kept, it writes past Lock. With [Arrived] around the server:
//
//	                  sent at once           held back by a middleware that buffers or compresses
//	a success         connection broken      passes, or connection broken after a loss
//	an error          connection broken      passes
//
// Without Arrived, Lock sees only what has reached gin's own ResponseWriter when the handlers have returned, and not
// that if they stream. It then breaks the connection, but the client may have the whole response by then. Lock does not
// see what a handler of net/http writes past it, what a handler of gin writes to a ResponseWriter outside of gin, what
// a middleware still holds back, and what a middleware makes of a refusal. All this reaches the client, also after a
// loss.
//
// What passes or is not seen is not recorded. What is sent past Lock after the handler has returned breaks the
// connection, and the handler's response is recorded. After a loss nothing is recorded. Otherwise the response counts
// that the handler has written to its own ResponseWriter, which may be an empty 200.
//
// Arrived does not see what is written to a ResponseWriter outside of it, or to the connection itself.
//
// A middleware that may return before its handlers must give them a ResponseWriter of its own, and drop what they write
// to it after that, as http.TimeoutHandler does. Otherwise net/http, and any middleware further out that keeps its
// buffers in a pool, may already use what they write to for the next request. Its client then gets what the handlers
// write, or what Lock sends in their place. Arrived prevents that once it has returned, but not while the middlewares
// inside it are about to return. In gin such a middleware must be around the engine: gin gives the Context to the next
// request.
//
// To break a connection, Lock panics with http.ErrAbortHandler. A middleware that runs its handlers in another goroutine
// must recover there and panic in its own, as http.TimeoutHandler does.
//
// # Idempotency-Key
//
// The header is defined by draft-ietf-httpapi-idempotency-key-header-07. The value may be quoted or not, and parameters
// after a quoted value are ignored. The handler runs until a response is recorded. While it runs, every other request
// with the same identity gets 409. Once a response is recorded, a repetition gets it, with the header
// Idempotent-Replayed: true, even if the resource has changed since. A request that has the same identity and a
// different fingerprint gets 422. Until a response is recorded, such a request runs, too. It is a mistake of the client.
//
//	                           resource's key    identity           fingerprint
//	service, tenant, route     yes               yes                –
//	parameters of the route    with ByParam      yes                –
//	method                     –                 yes                –
//	sender                     –                 yes                –
//	Idempotency-Key            –                 yes                –
//	path, query, body          as By… reads it   –                  yes
//	credentials                –                 –                  with NoSender
//	host, port, scheme         –                 –                  –
//	other headers              –                 –                  –
//
// The path is as the client has sent it. If a request is made in the process, and has no RequestURI, the path of its URL
// counts, from which http.StripPrefix may have cut the beginning.
//
// The resource's key excludes requests from one another: two users' updates of one order, by PUT and by DELETE. With
// [ByKey] it is the result of the function, and nothing else. The identity makes requests repetitions of one another.
// The fingerprint finds a client that uses one Idempotency-Key for two requests. The address of the service is in none
// of them, so that a client may retry at another replica, port or name. If tenants are hosts, let [WithTenant] return
// the tenant that the application knows by r.Host. The host itself has several spellings: in capitals, with the port, and
// with a dot at the end.
//
// The function that WithIdempotency takes returns the sender, such as the user that the authentication has found. With
// [NoSender], two users with the same Idempotency-Key have the same identity. Then the credentials (the headers
// Authorization, Cookie and X-Api-Key, and the client's certificate) are in the fingerprint, and a client with a
// renewed token gets 422.
//
// Run.Identity is a hash of the identity, for a UNIQUE column. Do not use the resource's key or the fencing token for
// that: each run has a different token. The identity is the same in each run of the handler, so that the database makes
// the effect happen once, even if a lease is lost after the commit, or the process dies before the response is
// recorded. Store it beside the effect, in one transaction:
//
//	CREATE TABLE payments (…, request char(64) UNIQUE)
//
//	run, _ := httplock.FromContext(c.Request.Context())
//	_, err := tx.Exec("INSERT INTO payments (…, request) VALUES (…, ?)", run.Identity)
//	// if that violates UNIQUE, the payment was made before: read it, and respond with it
//
// After a loss, a client may have used its Idempotency-Key for a request with another body, and finds the payment of the
// first one. If your clients make that mistake, store what the payment was for, and compare it.
//
// Package core/fence does the same without a column of yours, with the result of the work: the context of a request with
// an Idempotency-Key names the identity as its work ([core.Work]). If the work is done, that package returns the result
// that is stored beside the effect, from which the handler writes its response. If the database has seen a greater
// fencing token, pass the error to [Lost]:
//
//	receipt, err := store.Do(r.Context(), db, book)
//	switch {
//	case err == nil, errors.Is(err, core.ErrDone): // receipt is the result of this run, or of an earlier one
//		w.Write(receipt)
//	case httplock.Lost(r, err): // the middleware responds with 503
//	default:
//		http.Error(w, "try again", http.StatusInternalServerError)
//	}
//
// The context of a request with an Idempotency-Key does not end when its client leaves, because the client will ask
// again. A lease around Lock may end then, and the context with it. The handler does not see the header
// Accept-Encoding: a repetition may come from a client that accepts another encoding. The http.Client of Go repeats
// such a request itself if its connection breaks before the response.
//
// # Recorded responses
//
// Every response of a handler is recorded, successes and errors alike, unless it invites a retry:
//
//   - the statuses 401, 403, 407, 408, 423, 425, 429, 499, and all from 500 on;
//   - any other status from 400 on, if the handler has set a Retry-After header, even if too late for it to be sent;
//   - a response that is shorter than its Content-Length;
//   - no response at all: the handler did not run, or panicked, or a lease was lost;
//   - nothing, neither a status nor a body, if the context of the handlers or of the request has ended when they return,
//     for instance at a deadline. A handler that has had its effect by then must write a status;
//   - in gin, no body after the handlers have added an error (c.Error): a middleware further out may respond to it.
//
// After these, a repetition runs the handler again. If the effect of a handler stands although it fails, the handler
// must call [Record]: its response is then recorded with any status. A handler that stops in the middle of its response,
// for instance at a deadline, must panic with http.ErrAbortHandler: otherwise what it has written counts as the whole.
// A part that a middleware inside Lock adds counts, too.
//
// A header is recorded if the handler has set it, unless a middleware further out has set it to the same values before. A
// header that the handler has removed is removed from repetitions. If a middleware further out changes its own header
// while the handler runs, as a session does that is saved, the client gets the change, unless the response is refused, and
// it is not recorded. Cookies, dates, trailers, and headers of a connection are not repeated. Nor are headers with names
// that begin with Idempotent-: in a repetition they are the middleware's own.
//
// If too few nodes confirm the record within a second, the response is sent, and the middleware tries to write the
// record for 30 s more, or until Drain. Records are as durable as the Redis servers: if these lose their data, a
// repetition runs again (docs/deploy.md says how to prevent that).
//
// If the nodes say that a lease is lost when the record is written, some of them may have stored it all the same. The
// client gets a refusal, and a repetition may get the record. The handler had returned under its leases.
//
// # How long a request takes
//
//	reading the body                         http.Server.ReadTimeout
//	the functions of options                 their own time
//	waiting                                  WithMaxWait, or less: see below
//	the handler                              its own time
//	releasing the leases                     100 ms
//	recording, with an Idempotency-Key       1 s
//
// These are the longest times. If a request has a deadline, or the server has a WriteTimeout, a wait takes at most
// three quarters of the time that is left when the wait begins. The time of a WriteTimeout counts from [Arrived], a
// handler around the whole server. Without Arrived it counts from Lock, and the time that a slow middleware further out
// has used up is not known.
//
// The functions that options are given (ByFunc, ByKey, WithTenant, WithIdempotency, WithReply) may be slow. Their time
// does not count as waiting, and delays only their own request. If one of them panics, the log has the stack, the
// leases of the request are released, and the request is refused with 500. If WithReply's function panics, the default
// refusal is written.
//
// A request waits for its resource, and, with an Idempotency-Key or without, for a quorum of nodes. It does not wait
// for another request with its identity. If a lease is lost during a wait, the request gets a 503 that says that
// nothing was done. With WithMaxWait(0) a request does not wait. Each lease still takes one to three requests to the
// nodes, or up to 15 if several replicas ask at the same moment. Each of these requests takes at most the node timeout,
// which is a tenth of the TTL but at most 1 s.
//
// If a key is held, Retry-After is the remaining time of the holder's lease, although most keys are free sooner. If the
// key is in a cooldown, because an operator has ended a lease, the refusal gives the remaining time of the cooldown.
//
// # Where to put it
//
// Put the middleware inside Recovery, logging, authentication and rate limits, and inside any middleware that sets a
// deadline. Recovery turns a panic into a response. If it did so inside this middleware, the panic would count as a
// response with status 500, or as the response that the handler has begun. A panic with http.ErrAbortHandler would
// count as a response with the handler's own status, from gin 1.12 on, and would be recorded. The bytes that a handler
// has written before it panics are dropped, unless they were streamed.
//
// Put code that responds after the handler has returned, such as an error renderer, inside this middleware. Otherwise a
// handler that returns an error has responded with an empty 200, which is recorded, although the client may get an
// error. The handlers of echo return errors, to which echo responds after all middlewares: examples/drivers/routers
// shows a middleware that does so inside this one. If the response that comes afterwards is written to the
// ResponseWriter of this middleware, as by echo, it is dropped, the client gets the empty 200, and the log has
// EventMisconfigured.
//
// Put the middleware further out than any middleware that reads the body of a request: a form parser, a check of CSRF
// tokens, ShouldBindBodyWith. A request with an Idempotency-Key, or with a key of its body, is refused with 500 if less
// of the body is left than its Content-Length header says, if a form was parsed, if gin has stored the body, or if the
// length of the body is not known and nothing is left of it. If a middleware has read a part of a body of unknown
// length, that cannot be recognized.
//
// Compression may go on either side. If its ResponseWriter has no Unwrap method, as in http.TimeoutHandler and in
// many middlewares that compress, httplock cannot reach the connection, and responses are never streamed (rule 4).
// Streams need the servers of net/http, or golang.org/x/net/http2.
//
// One Lock is around a request, never two: a Lock inside another is refused with 500, and the error says so. To lock
// the routes of a group by more than the group, give each the Middleware that does it all, as in
// m.With(httplock.ByParam("id")). Two keys that are taken one after the other, in any order, can deadlock. For a second
// key inside a handler, use core.Locker.Do, in one order on all routes.
//
// Set http.Server.ReadTimeout and WriteTimeout. Without ReadTimeout, a client that stalls its upload keeps a goroutine
// for ever. Without WriteTimeout, a client that does not read a stream keeps the key for ever. Bodies and responses
// that are held back take memory: see [WithMemory]. For uploads that are larger than [WithBodyLimit], for WebSockets,
// and for reads that need a lock, lock inside the handler (core.Locker.Do).
//
// A key is made of the route's template and the values of its parameters. If a release of your service renames a
// parameter or changes the router, the keys change: while both releases run, their replicas do not exclude each other.
// A key made by [ByKey] stays the same, and can be shared with other routes, tasks and jobs.
//
// With gin before 1.12, do not pass a request to a route with Lock by Engine.HandleContext: its handlers may run a second
// time, outside of Lock and of all other middlewares (gin-gonic/gin#1848).
//
// With gin, put Lock on routes and groups. A request without a route cannot be locked: if a handler would run under
// Lock, in NoRoute, in NoMethod, or after Lock in Engine.Use, it is refused with 500. With net/http the middleware goes
// inside the router, around the handler of a route, because it must see the route's whole template. In chi (v5.3 or
// later) use r.With, or r.Use in an r.Group. With r.Use in an r.Route, or behind http.StripPrefix, it sees a part of
// the template only, and different routes share their keys, and parts that a handler makes of its request by Clone also
// their answers; a parameter that it does not see is refused with 500.
//
// # Shutdown
//
//	server.RegisterOnShutdown(m.Drain) // requests that wait are refused at once
//	…
//	err := errors.Join(server.Shutdown(ctx), m.Close(ctx), locker.Close(ctx)) // ctx with a deadline
//
// Coming from a middleware of your own: docs/migrate.md.
package httplock
