package recipes

import (
	"context"
	"net/http"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/cronlock"
	"github.com/lockkit/lockkit/httplock"
	"github.com/lockkit/lockkit/queuelock"
)

// customerKey is the one key under which a job, a task and a route work on a customer.
func customerKey(id string) string { return core.Key("customer", id) }

// Shared is a job, a task and a route that never work on one customer at the same time.
type Shared struct {
	Job     *cronlock.Job
	Tasks   *queuelock.Middleware // for mux.Use
	Route   http.Handler
	closers []func(context.Context) error
}

// NewShared makes them. Their fencing tokens are those of one key, so a store can compare them.
func NewShared(locker *core.Locker, customer string, work func(ctx context.Context, who string) error) (s *Shared, err error) {
	s = &Shared{}
	// A task {"customer":"7"}: ByPayloadField makes the key core.Key("customer", "7").
	if s.Tasks, err = queuelock.New(locker, queuelock.WithKey(queuelock.ByPayloadField("customer"))); err != nil {
		return nil, err
	}
	// A route PUT /customers/{id}.
	byCustomer, err := httplock.New(locker, "shop", httplock.ByKey(func(r *http.Request) (string, error) { return customerKey(r.PathValue("id")), nil }))
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("PUT /customers/{id}", byCustomer.LockHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := work(r.Context(), "route"); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})))
	s.Route = mux
	// A job: cronlock has keys of its own, so the function takes the customer's.
	cron, err := cronlock.New(locker, "shop")
	if err != nil {
		return nil, err
	}
	s.Job, err = cron.Add("statement", cronlock.Every(time.Hour), func(ctx context.Context) error {
		return locker.Do(ctx, customerKey(customer), func(ctx context.Context) error { return work(ctx, "job") })
	})
	s.closers = []func(context.Context) error{byCustomer.Close, cron.Close}
	return s, err
}
