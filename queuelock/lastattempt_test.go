package queuelock

import (
	"context"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
)

const lastTimeout = 2 * time.Minute

// enqueueLast enqueues a task that has but one attempt.
func (r *rig) enqueueLast() {
	r.enqueue(order(1), ID("t"), asynq.MaxRetry(0), asynq.Timeout(lastTimeout))
}

// ended returns how many tasks were archived, and of how many that was said.
func (r *rig) ended() (archived, told int) {
	r.pass(lastTimeout)
	return r.count(EventArchived), r.logs.count("ERROR queuelock: a task could not be run")
}

// A last attempt that cannot wait until its key does not rest any more asks once more when it is to end, and not all the time.
func TestLastAttemptOfAKeyThatRests(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		lease, err := r.locker().Acquire(t.Context(), core.Key("order", "1"))
		if err != nil {
			t.Fatal(err)
		}
		if err := lease.Release(t.Context(), core.Cooldown(2*lastTimeout)); err != nil {
			t.Fatal(err)
		}
		r.enqueueLast() // before the server asks asynq for tasks, which it does again only seconds later
		r.serve(setup{opts: []Option{field("order")}}, func(ctx context.Context, _ *asynq.Task) error { return r.work(ctx, 0) })
		if archived, told := r.ended(); len(r.ledger.runs) > 0 || archived != 1 || told != 1 {
			t.Errorf("%+v, %v\n%s", &r.ledger, r.events.Counts(), &r.logs)
		}
		if n := r.events.Count("acquire held"); n > 3 {
			t.Errorf("asked %d times", n)
		}
	})
}
