package httplock_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/gin-gonic/gin"
	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/httplock"
	"github.com/lockkit/lockkit/testutil"
)

// One Middleware serves any number of routes: the route is a part of the key.
func Example() {
	ctx := context.Background()
	node := testutil.StartNode()
	defer node.Close()
	locker, err := core.New([]redis.UniversalClient{node.Client()})
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close(ctx)

	byID, err := httplock.New(locker, "orders", httplock.ByParam("id"))
	if err != nil {
		log.Fatal(err)
	}
	defer byID.Close(ctx)

	r := gin.New()
	r.Use(gin.Recovery())
	r.PUT("/orders/:id", byID.Lock, func(c *gin.Context) {
		run, _ := httplock.FromContext(c.Request.Context())
		c.String(200, "order %s, with a fencing token: %v", c.Param("id"), run.FencingToken > 0)
	})

	w := httptest.NewRecorder()
	r.ServeHTTP(w, httptest.NewRequest("PUT", "/orders/42", nil))
	fmt.Println(w.Code, w.Body)
	// Output:
	// 200 order 42, with a fencing token: true
}

// The first request with an Idempotency-Key runs. A repetition gets its response.
func ExampleWithIdempotency() {
	ctx := context.Background()
	node := testutil.StartNode()
	defer node.Close()
	locker, err := core.New([]redis.UniversalClient{node.Client()})
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close(ctx)

	m, err := httplock.New(locker, "payments", httplock.WithIdempotency(true, httplock.NoSender),
		httplock.WithTenant(func(r *http.Request) (string, error) {
			c, _ := httplock.GinContext(r)
			return c.GetString("user"), nil
		}))
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close(ctx)

	payments := 0
	r := gin.New()
	r.Use(func(c *gin.Context) { c.Set("user", "alice") }) // authentication
	r.POST("/payments", m.Lock, func(c *gin.Context) {
		payments++
		c.String(201, "payment %d", payments)
	})

	for range 2 {
		req := httptest.NewRequest("POST", "/payments", nil)
		req.Header.Set("Idempotency-Key", `"8e03978e-40d5-43dd-bc93-6894a57f9324"`)
		w := httptest.NewRecorder()
		r.ServeHTTP(w, req)
		fmt.Printf("%d %s, replayed: %q\n", w.Code, w.Body, w.Header().Get("Idempotent-Replayed"))
	}
	// Output:
	// 201 payment 1, replayed: ""
	// 201 payment 1, replayed: "true"
}
