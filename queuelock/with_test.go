package queuelock

import (
	"testing"
	"time"

	"github.com/hibiken/asynq"
)

// A mux with two types of tasks runs both, although one of them lacks the field of the key.
func TestKeyOfOneType(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		m, mux := r.middleware(r.locker()), asynq.NewServeMux()
		mux.Handle("task:", m.Middleware(r.works(0)))
		mux.Handle("task:charge", must(m.With(field("order"))).Middleware(r.works(0)))
		r.serve(setup{bare: true, adjust: r.configures(m)}, mux.ProcessTask)
		r.take(1)
		mail := r.enqueue(asynq.NewTask("task:mail", []byte(`{"to":"a"}`)), asynq.MaxRetry(0))
		charge := r.enqueue(asynq.NewTask("task:charge", []byte(`{"order":1}`)))
		other := r.enqueue(asynq.NewTask("task:charge", []byte(`{"order":2}`)))
		r.pass(20 * time.Second)
		if r.ledger.done[mail.ID] != 1 || r.ledger.done[other.ID] != 1 || r.ledger.runs[charge.ID] != 0 || r.count(EventNoKey) > 0 || r.logs.Count("level=ERROR") > 0 {
			t.Errorf("%+v, %s, %v\n%s", &r.ledger, r.state(mail), r.events.Counts(), r.logs.Lines())
		}
	})
}

// The Middleware that With returns has the options of both, and the server's waiting places and limiter.
func TestWith(t *testing.T) {
	m := must(New(testLocker(t), WithGrace(time.Hour), WithWaiters(3), field("order")))
	w := must(m.With(WithRetention(time.Minute)))
	if w.grace != time.Hour || w.waiters != 3 || w.retention != time.Minute || m.retention != 8*time.Hour || w.key == nil {
		t.Errorf("%+v", w.config)
	}
	cfg := asynq.Config{Concurrency: 8}
	if err := m.Configure(&cfg); err != nil {
		t.Fatal(err)
	}
	if ctx := cfg.BaseContext(); w.origin(ctx).server != m.origin(ctx).server || cap(w.origin(ctx).server.places) != 3 {
		t.Error("another server")
	}
}
