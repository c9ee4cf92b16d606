package queuelock

import (
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
)

// On a last attempt, a key may have a cooldown that outlasts the wait. Then the middleware asks once more at the end of
// the wait, and not all the time.
func TestLastAttemptOfAKeyThatRests(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		must0(t, must(r.locker().Acquire(t.Context(), core.Key("order", "1"))).Release(t.Context(), core.Cooldown(4*time.Minute)))
		// The task must be there first: the server looks for tasks at its start, and then only seconds later.
		r.enqueue(order(1), asynq.MaxRetry(0), asynq.Timeout(2*time.Minute))
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
