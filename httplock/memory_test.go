package httplock

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/testutil"
)

// What a client can leave on each node by requests with an Idempotency-Key of their own: the manual says it, so that
// somebody keeps strangers from it.
func TestMemoryOfARequest(t *testing.T) {
	t.Parallel()
	server := testutil.NewServers(t, 1)[0]
	client := server.Client()
	m := middleware(t, lockerOn(t, []redis.UniversalClient{client}, patient...), ByParam("id"), WithIdempotency(true))
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{id}", m.LockHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, `{"id":42}`)
	})))
	const requests = 50
	for i := range requests {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, fmt.Sprint("/orders/", i), nil)
		r.Header.Set("Idempotency-Key", fmt.Sprintf("%0200d", i))
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		if w.Code != http.StatusCreated {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
	}
	keys := client.Keys(t.Context(), "lockkit:*").Val()
	bytes := 0
	for _, k := range keys {
		bytes += int(client.MemoryUsage(t.Context(), k, 0).Val())
	}
	t.Logf("%.2f keys and %d bytes of each request", float64(len(keys))/requests, bytes/requests)
	if most := 4*requests + 1; len(keys) > most || bytes/requests > 1<<10 {
		t.Errorf("%d keys and %d bytes of %d requests, want at most 4 and 1 kB of each", len(keys), bytes, requests)
	}
}
