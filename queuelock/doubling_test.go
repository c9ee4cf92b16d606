package queuelock

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/internal/race"
	"github.com/lockkit/lockkit/testutil"
)

// aggregateTwice has asynq aggregate two tasks twice, which the simulation does not.
func (r *rig) aggregateTwice(s setup) {
	s.adjust = func(cfg *asynq.Config) {
		cfg.GroupGracePeriod, cfg.GroupMaxSize = 10*time.Second, 2
		cfg.GroupAggregator = asynq.GroupAggregatorFunc(func(group string, tasks []*asynq.Task) *asynq.Task {
			var members []string
			for _, t := range tasks {
				members = append(members, string(t.Payload()))
			}
			slices.Sort(members)
			all := strings.Join(members, ",")
			return asynq.NewTask("task:sum", []byte(group+":"+all), ID(group, all))
		})
	}
	srv := r.serve(s, func(ctx context.Context, t *asynq.Task) error {
		return r.ledger.run(string(t.Payload()), func() error { time.Sleep(time.Second); return nil })
	})
	srv.link.OnRequest(once(func(cmd redis.Cmder) bool { // the deletion of the set
		return script(cmd, ":groups", ":aggregation_sets", ":t:", ":g:all:")
	}))
	r.enqueue(asynq.NewTask("task:one", []byte("a")), asynq.Group("all"))
	r.enqueue(asynq.NewTask("task:one", []byte("b")), asynq.Group("all"))
	r.pass(5 * time.Minute) // the set is back in its group, which asynq looks at when a member joins
	r.enqueue(asynq.NewTask("task:one", []byte("c")), asynq.Group("all"))
	r.pass(8 * time.Minute)
}

// once has the first command of a kind fail, unsent.
func once(is func(redis.Cmder) bool) func(redis.Cmder) testutil.Action {
	var hit atomic.Bool
	return func(cmd redis.Cmder) testutil.Action {
		return testutil.Action{DropRequest: is(cmd) && hit.CompareAndSwap(false, true)}
	}
}

// What is aggregated twice runs twice, and once with the middleware if its id is made of its members.
func TestAggregatedTwice(t *testing.T) {
	race.Campaign(t)
	for _, bare := range []bool{true, false} {
		bubbleOf(t, fmt.Sprintf("bare %v", bare), func(t *testing.T, r *rig) {
			r.aggregateTwice(setup{bare: bare})
			if doubled := r.ledger.overlaps+r.ledger.again > 0; doubled != bare || len(r.ledger.done) == 0 || !bare && r.count(EventDuplicate) == 0 {
				t.Errorf("%+v, %v", &r.ledger, r.events.Counts())
			}
		})
	}
}
