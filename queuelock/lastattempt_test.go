package queuelock

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/testutil"
)

// hide has the nodes lose all requests that name the key of an order, until back is called.
func (r *rig) hide() (back func()) {
	var seen atomic.Bool
	for _, n := range r.nodes {
		n.OnRequest(func(args []string) testutil.Action {
			return testutil.Action{DropRequest: !seen.Load() && strings.Contains(strings.Join(args, " "), "r:5:order")}
		})
	}
	return func() { seen.Store(true) }
}

// A last attempt waits for locks that are out of reach, or were lost, for as long as its deadline lets it. If that is
// not long enough, asynq archives it, and that is said.
func TestLastAttemptWhateverIsMissing(t *testing.T) {
	for name, c := range map[string]lastAttempt{
		"out of reach": {},
		"its own lease is lost": {miss: func(r *rig, _ *process) func() {
			free := r.take(1)
			r.enqueueLast()
			r.events.UntilRunning(r.t, core.OpAcquire, 1)
			r.pass(time.Second)
			r.steal(core.Key("queue", "task", theID))()
			r.pass(5 * time.Second) // a renewal
			return free
		}},
		"Locker closed": {forGood: true, miss: func(r *rig, srv *process) func() {
			if err := srv.locker.Close(r.t.Context()); err != nil {
				r.t.Error(err)
			}
			r.enqueueLast()
			return func() {}
		}},
	} {
		t.Run(name, func(t *testing.T) { bubble(t, c.inVain) })
		if !c.forGood {
			t.Run(name+", soon back", func(t *testing.T) { bubble(t, c.inTime) })
		}
	}
}

const lastTimeout = 2 * time.Minute

// enqueueLast enqueues a task that has but one attempt.
func (r *rig) enqueueLast() {
	r.enqueue(order(1), ID("t"), asynq.MaxRetry(0), asynq.Timeout(lastTimeout))
}

// A lastAttempt is one that locks are missing for: out of reach, if miss does not say otherwise.
type lastAttempt struct {
	miss    func(r *rig, srv *process) (back func()) // enqueues the task
	forGood bool
}

// begin lets half a minute pass in which the locks are missing.
func (c lastAttempt) begin(r *rig) (back func()) {
	srv := r.serve(setup{opts: []Option{field("order")}}, func(ctx context.Context, _ *asynq.Task) error { return r.work(ctx, 0) })
	if c.miss != nil {
		back = c.miss(r, srv)
	} else {
		back = r.hide()
		r.enqueueLast()
	}
	r.pass(30 * time.Second)
	return back
}

// ended returns how many tasks were archived, and of how many that was said.
func (r *rig) ended() (archived, told int) {
	r.pass(lastTimeout)
	return r.count(EventArchived), r.logs.count("ERROR queuelock: a task could not be run")
}

func (c lastAttempt) inTime(t *testing.T, r *rig) {
	c.begin(r)()
	if archived, told := r.ended(); r.ledger.done[theID] != 1 || archived+told > 0 {
		t.Errorf("%+v, %v\n%s", &r.ledger, r.events.Counts(), &r.logs)
	}
}

func (c lastAttempt) inVain(t *testing.T, r *rig) {
	back := c.begin(r)
	defer back()
	if archived, told := r.ended(); len(r.ledger.runs) > 0 || archived != 1 || told != 1 {
		t.Errorf("%+v, %v\n%s", &r.ledger, r.events.Counts(), &r.logs)
	}
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
		r.serve(setup{opts: []Option{field("order")}}, func(ctx context.Context, _ *asynq.Task) error { return r.work(ctx, 0) })
		before := r.events.Count("acquire held")
		r.enqueueLast()
		if archived, told := r.ended(); len(r.ledger.runs) > 0 || archived != 1 || told != 1 {
			t.Errorf("%+v, %v\n%s", &r.ledger, r.events.Counts(), &r.logs)
		}
		if n := r.events.Count("acquire held") - before; n > 3 {
			t.Errorf("asked %d times", n)
		}
	})
}
