package recipes

import (
	"context"
	"fmt"
	"net/http"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/httplock"
)

// conversations serves conversations of which one request at a time goes on: a POST that is answered with events, which the
// client gets while the handler writes them.
func conversations(locker *core.Locker, answer func(ctx context.Context, question string) <-chan string) (*httplock.Middleware, http.Handler, error) {
	byID, err := httplock.New(locker, "chat", httplock.ByParam("id"))
	if err != nil {
		return nil, nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("POST /conversations/{id}", byID.LockHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for word := range answer(r.Context(), r.FormValue("question")) {
			if r.Context().Err() != nil {
				return // the lease was lost, or the client has left
			}
			fmt.Fprintf(w, "data: %s\n\n", word)
			http.NewResponseController(w).Flush()
		}
		fmt.Fprint(w, "event: end\ndata:\n\n") // what tells the client that it has everything
	})))
	return byID, mux, nil
}
