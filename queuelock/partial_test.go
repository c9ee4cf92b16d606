package queuelock

import (
	"context"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/internal/race"
)

// Who waits for a key leaves a worker free also where some workers run what a Runner does not see: the tasks of handlers
// that are not behind its middleware, or behind that of another Runner.
func TestWorkersThatARunnerDoesNotSee(t *testing.T) {
	race.Campaign(t)
	for name, first := range map[string][]string{
		"a handler without middleware": {"plain"},
		"two Runners":                  {"b:", "b:", "b:", "b:", "a:", "a:", "a:"},
		"both":                         {"b:", "plain", "a:", "plain", "b:"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) { underHalf(t, r, first) })
		})
	}
}

func underHalf(t *testing.T, r *rig, first []string) {
	defer r.serveHalf()()
	back := r.take(1)
	for _, typ := range first {
		r.enqueue(asynq.NewTask(typ, []byte(`{"order":1}`)))
	}
	r.pass(2 * time.Second)
	for range 10 {
		r.enqueue(asynq.NewTask("a:", []byte(`{"order":1}`)))
	}
	r.pass(2 * time.Second)
	for i := range 3 { // they do not come back into the way
		info := r.enqueue(asynq.NewTask("a:", []byte(`{"order":2}`)))
		r.pass(10 * time.Second)
		if s := r.state(info); s != "gone" {
			t.Errorf("task %d, which need not wait, is %s", i, s)
		}
	}
	back()
	r.pass(25 * time.Minute)
	if q, err := r.inspector.GetQueueInfo("default"); err != nil || q.Size > 0 {
		t.Errorf("left: %+v, %v", q, err)
	}
}

// serveHalf starts a server with two Runners, for types "a:" and "b:", and tasks "plain" that neither of them sees.
func (r *rig) serveHalf() (stop func()) {
	cfg := asynq.Config{Concurrency: 8, Logger: silent{}}
	mux := asynq.NewServeMux()
	for _, typ := range []string{"a:", "b:"} {
		runner := r.runner(r.locker(), field("order"))
		if err := runner.Configure(&cfg); err != nil {
			r.t.Fatal(err)
		}
		mux.Handle(typ, runner.Middleware(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error { return r.work(ctx, 0) })))
	}
	mux.HandleFunc("plain", func(context.Context, *asynq.Task) error { time.Sleep(20 * time.Minute); return nil })
	srv := asynq.NewServerFromRedisClient(r.dialQueue(), cfg)
	if err := srv.Start(mux); err != nil {
		r.t.Fatal(err)
	}
	return srv.Shutdown
}

// What a Runner does not see counts for half an hour, or until so many more have been fetched that it has ended.
func TestUnseenIsForgotten(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		ws := newWorkers(2)
		full := func(want bool) {
			t.Helper()
			if got := ws.full(); got != want {
				t.Errorf("full: %v", got)
			}
		}
		ws.fetch()
		full(false)
		ws.fetch()
		full(true)
		r.pass(20 * time.Minute)
		ws.fetch() // so one has ended
		r.pass(11 * time.Minute)
		full(false)
		r.pass(20 * time.Minute)
		ws.fetch()
		_, leave := ws.join(t.Context())
		full(false) // that was the one
		ws.fetch()
		full(true)
		ws.unfetch()
		full(false)
		leave()
	})
}
