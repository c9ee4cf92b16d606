package httpfence

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/lockkit/lockkit/core/fence"
	"github.com/lockkit/lockkit/core/fence/internal/holder"
)

// Require returns a handler that receives the lease of each request, as [Receive] does, and calls next with it in the
// context. If the header cannot be used, the request gets 400. If key returns "", it gets 500.
func Require(key func(r *http.Request) string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, err := Receive(r, key(r))
		if Refuse(w, err) {
			return
		}
		if err != nil {
			http.Error(w, http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
			return
		}
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// A refusal is a response in place of the handler's.
type refusal struct {
	kind          string
	status        int
	title, detail string // for people
}

var (
	staleRefusal = refusal{
		kind:   "stale",
		status: http.StatusConflict,
		title:  "Fencing token is stale",
		detail: "Nothing was written: a later holder of the lock has been at work. Stop.",
	}
	tooOldRefusal = refusal{
		kind:   "too_old",
		status: http.StatusConflict,
		title:  "Fencing token is too old",
		detail: "Nothing was written. Release the lock, and acquire it again.",
	}
	headerRefusal = refusal{
		kind:   "header",
		status: http.StatusBadRequest,
		title:  Header + " is missing or malformed, or is for another key",
		detail: "Nothing was done. Send it under a lease on the key of this resource.",
	}
)

// Refuse answers a request if err is the refusal of its fencing token, and reports whether it has. If err matches
// fence.ErrStale or fence.ErrTooOld, the status is 409. If it matches [ErrHeader], the status is 400. The body is of
// type application/problem+json (RFC 9457), and has neither the key nor a token. With any other error, nil included,
// Refuse does nothing. Call it before anything is written to w, and after the transaction was rolled back.
func Refuse(w http.ResponseWriter, err error) bool {
	switch {
	case errors.Is(err, fence.ErrStale):
		staleRefusal.write(w)
	case errors.Is(err, fence.ErrTooOld):
		tooOldRefusal.write(w)
	case errors.Is(err, ErrHeader):
		headerRefusal.write(w)
	default:
		return false
	}
	return true
}

// write sends the refusal.
func (f refusal) write(w http.ResponseWriter) {
	kind := "urn:lockkit:httpfence:" + f.kind
	text, _ := json.Marshal(map[string]any{"type": kind, "title": f.title, "status": f.status, "detail": f.detail})

	// They describe the response that the handler meant to send. Content-Encoding stays, as in http.Error: it may be that of a
	// middleware which compresses this one, too.
	for _, name := range []string{"Content-Length", "Etag", "Last-Modified", "Cache-Control"} {
		w.Header().Del(name)
	}

	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set(Header, f.kind)

	// The same request can succeed with another token, so httplock must not record this response as its outcome.
	w.Header().Set("Retry-After", "0")

	w.WriteHeader(f.status)
	_, _ = w.Write(text) // the client may be gone
}

// Refused returns the error of a response by which [Refuse] has answered a stale token or one that is too old: it
// matches fence.ErrStale and core.ErrLost, or fence.ErrTooOld, as the error in the service did. So a handler that
// returns it is treated as if the database were its own. For any other response, Refused returns nil. It does not read
// the body.
func Refused(response *http.Response) error {
	isConflict := response != nil && response.StatusCode == http.StatusConflict
	if !isConflict {
		return nil
	}

	// Without the request, the error does not name the key.
	var h holder.Holder
	if response.Request != nil {
		h, _ = parse(response.Request.Header.Get(Header))
	}

	switch response.Header.Get(Header) {
	case staleRefusal.kind:
		return h.StaleFor(fmt.Sprintf("the service has seen a greater token than %d", h.Token))
	case tooOldRefusal.kind:
		return fmt.Errorf("fence: check %q: %w for the service: release the lease, and acquire it again",
			h.Key, fence.ErrTooOld)
	}
	return nil
}
