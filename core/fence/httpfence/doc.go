// Package httpfence passes a fencing token to another service by HTTP, so that the database of that service refuses the
// writes of stale lock holders.
//
// The client has a lease, and sends its key and token with a request:
//
//	err := locker.Do(ctx, core.Key("order", id), func(ctx context.Context) error {
//		request, err := http.NewRequestWithContext(ctx, "POST", url, body)
//		…
//		if err := httpfence.Set(request); err != nil {
//			return err
//		}
//		response, err := http.DefaultClient.Do(request)
//		…
//		if err := httpfence.Refused(response); err != nil {
//			return err // it matches fence.ErrStale, as if the database were here
//		}
//		…
//	})
//
// The service receives the token, checks it in its transaction, and answers a stale one with 409:
//
//	key := func(r *http.Request) string { return core.Key("order", r.PathValue("id")) }
//	mux.Handle("POST /orders/{id}", httpfence.Require(key, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
//		err := store.DoChecked(r.Context(), db, …)
//		if httpfence.Refuse(w, err) {
//			return
//		}
//		…
//	})))
//
// With gin and other routers, call Receive in a middleware (see its example).
//
// # Guarantee
//
// Set sends the innermost lease of the request's context. In the context that Receive or Require returns, methods of
// fence.Store and of redisfence.Script take that lease for the innermost one. So the guarantee of package fence holds
// for the database of the service, with all clients that lock the key. The service needs no lock nodes.
//
// No request has the header unless the client has called Set for it, and no service takes it unless it has called
// Receive or Require. If the header is missing or malformed, or is for another key, the request gets 400 before its
// handler runs.
//
// # Non-guarantee
//
// Require checks no token. The handler must check it in its transaction (Check, Do, DoChecked), because only the
// database has seen the tokens of other servers' requests.
//
// The header is not signed. Any client can claim any token up to two days ahead, and such a token locks out all holders
// until they have greater ones. So take it from authenticated clients only, and remove it from requests that come from
// outside ([Header] is its name). It shows the key. net/http sends it again after a redirect.
//
// All clients of a key must use the same key prefix (core.WithKeyPrefix), because it is a part of the key's identity.
//
// # A lock of the service
//
// A service may also hold its own lease, as by httplock. The innermost one counts: put Require inside of the
// middleware of httplock, and Check is for the client's lease. Check the service's lease by Store.CheckLease. Refusals
// have a Retry-After of 0, so that httplock does not record them as the outcome of an Idempotency-Key: with another
// token, the same request can succeed. A lease that the handler acquires later is the innermost one from there on, but
// a reentrant run acquires none.
//
// For Once and Do, the service names the work itself, by an Idempotency-Key (httplock) or core.Locker.WithWork.
package httpfence
