package queuelock

import (
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
)

// A last attempt that cannot wait until its key does not rest any more asks once more when it is to end, and not all the time.
func TestLastAttemptOfAKeyThatRests(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		must0(t, must(r.locker().Acquire(t.Context(), core.Key("order", "1"))).Release(t.Context(), core.Cooldown(4*time.Minute)))
		r.enqueue(order(1), asynq.MaxRetry(0), asynq.Timeout(2*time.Minute)) // before the server asks asynq for tasks, which it does again only seconds later
		r.serve(setup{opts: []Option{field("order")}}, r.works(0))
		r.pass(2 * time.Minute)
		if len(r.ledger.runs) > 0 || r.count(EventArchived) != 1 {
			t.Errorf("%+v, %v\n%s", &r.ledger, r.events.Counts(), r.logs.Lines())
		}
		if n := r.events.Count("acquire held"); n > 3 {
			t.Errorf("asked %d times", n)
		}
	})
}
