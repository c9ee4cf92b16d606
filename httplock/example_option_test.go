package httplock_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/httplock"
	"github.com/lockkit/lockkit/testutil"
)

// serve serves requests, such as "PUT /orders/42 {}", with a handler for the route under a Middleware with the options.
// It prints the responses. An embedded node takes the place of Redis.
func serve(route string, opts []httplock.Option, requests ...string) {
	ctx, node := context.Background(), testutil.StartNode()
	defer node.Close()
	locker, err := core.New([]redis.UniversalClient{node.Client()})
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close(ctx)

	m, err := httplock.New(locker, "shop", opts...)
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close(ctx)

	mux := http.NewServeMux()
	mux.Handle(route, m.LockHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lease, _ := core.FromContext(r.Context())
		fmt.Fprintf(w, "under %s", lease.Key())
	})))

	for _, request := range requests {
		parts := strings.SplitN(request+"  ", " ", 3)
		r := httptest.NewRequest(parts[0], parts[1], strings.NewReader(strings.TrimSpace(parts[2])))
		r.Header.Set("Idempotency-Key", strings.Trim(parts[1], "/"))
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		fmt.Println(w.Code, title(w))
	}
}

// title returns the title of a refusal, or the body of any other response.
func title(w *httptest.ResponseRecorder) string {
	var refusal struct{ Title string }
	if json.Unmarshal(w.Body.Bytes(), &refusal) == nil {
		return refusal.Title
	}
	return w.Body.String()
}

// One request at a time runs for each order.
func ExampleByParam() {
	serve("PUT /orders/{id}", []httplock.Option{httplock.ByParam("id")}, "PUT /orders/42")
	// Output: 200 under 10:http/route/4:shop/0:/12:/orders/{id}/2:42
}

// One request at a time runs for each customer. The body names the customer.
func ExampleByJSON() {
	serve("POST /orders", []httplock.Option{httplock.ByJSON("customer", "id")},
		`POST /orders {"customer":{"id":"alice"}}`, `POST /orders {}`)
	// Output:
	// 200 under 10:http/route/4:shop/0:/7:/orders/5:alice
	// 400 Request does not name its resource
}

// The key is made of a part of the request that no other option reads.
func ExampleByFunc() {
	region := func(r *http.Request) (string, error) { return r.URL.Query().Get("region"), nil }
	serve("POST /stock", []httplock.Option{httplock.ByFunc(region)}, "POST /stock?region=eu", "POST /stock")
	// Output:
	// 200 under 10:http/route/4:shop/0:/6:/stock/2:eu
	// 400 Request does not name its resource
}

// The key is one that tasks and jobs can lock, too.
func ExampleByKey() {
	customer := func(r *http.Request) (string, error) { return core.Key("customer", r.PathValue("id")), nil }
	serve("PUT /customers/{id}", []httplock.Option{httplock.ByKey(customer)}, "PUT /customers/alice")
	// Output: 200 under 8:customer/5:alice
}

// Requests for a key that is held are refused at once instead of after 5 s.
func ExampleWithMaxWait() {
	serve("PUT /orders/{id}", []httplock.Option{httplock.ByParam("id"), httplock.WithMaxWait(0)}, "PUT /orders/42")
	// Output: 200 under 10:http/route/4:shop/0:/12:/orders/{id}/2:42
}

// In a process, at most 10 requests wait for one key, and 160 for all keys.
func ExampleWithMaxWaiters() {
	serve("PUT /orders/{id}", []httplock.Option{httplock.ByParam("id"), httplock.WithMaxWaiters(10)}, "PUT /orders/42")
	// Output: 200 under 10:http/route/4:shop/0:/12:/orders/{id}/2:42
}

// Bodies of more than 1 kB are refused.
func ExampleWithBodyLimit() {
	serve("PUT /orders/{id}", []httplock.Option{httplock.ByParam("id"), httplock.WithBodyLimit(1000)},
		"PUT /orders/42", "PUT /orders/43 "+strings.Repeat("x", 1001))
	// Output:
	// 200 under 10:http/route/4:shop/0:/12:/orders/{id}/2:42
	// 413 Body is too large
}

// Bodies and responses take at most 64 MiB in this process.
func ExampleWithMemory() {
	serve("PUT /orders/{id}", []httplock.Option{httplock.ByParam("id"), httplock.WithMemory(64 << 20)}, "PUT /orders/42")
	// Output: 200 under 10:http/route/4:shop/0:/12:/orders/{id}/2:42
}

// Refusals look like all other errors of this API.
func ExampleWithReply() {
	reply := func(w http.ResponseWriter, _ *http.Request, refusal httplock.Refusal) {
		http.Error(w, "error: "+string(refusal.Kind), refusal.Status)
	}
	serve("POST /orders", []httplock.Option{httplock.ByJSON("customer"), httplock.WithReply(reply)}, "POST /orders {}")
	// Output: 400 error: key_missing
}

// A repetition gets the recorded response for a week.
func ExampleWithRetention() {
	serve("POST /payments", []httplock.Option{httplock.WithIdempotency(true, httplock.NoSender), httplock.WithRetention(7 * 24 * time.Hour)},
		"POST /payments", "POST /payments")
	// Output:
	// 200 under 15:http/idempotent/4:shop/0:/4:POST/9:/payments/0:/8:payments
	// 200 under 15:http/idempotent/4:shop/0:/4:POST/9:/payments/0:/8:payments
}

// Tenants share neither keys nor responses.
func ExampleWithTenant() {
	tenant := func(r *http.Request) (string, error) { return r.URL.Query().Get("tenant"), nil } // from the authentication
	serve("PUT /orders/{id}", []httplock.Option{httplock.ByParam("id"), httplock.WithTenant(tenant)},
		"PUT /orders/42?tenant=acme", "PUT /orders/42?tenant=umbrella", "PUT /orders/42")
	// Output:
	// 200 under 10:http/route/4:shop/4:acme/12:/orders/{id}/2:42
	// 200 under 10:http/route/4:shop/8:umbrella/12:/orders/{id}/2:42
	// 400 Request does not name its resource
}
