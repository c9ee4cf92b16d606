package cronlock

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/race"
	"github.com/lockkit/lockkit/testutil"
	"github.com/lockkit/lockkit/testutil/history"
)

// Three replicas under random faults of nodes, and random partitions of replicas. No node loses its memory: a
// record may be on no more than a quorum when the others were away, and has to stay on that many.
func TestCampaign(t *testing.T) {
	race.Campaign(t)
	for seed := range uint64(2) {
		for _, most := range []int{1, 3} {
			t.Run(fmt.Sprintf("seed %d, %d attempts", seed, most), func(t *testing.T) {
				bubble(t, 3, func(t *testing.T, w *world) { campaign(t, w, seed, most) })
			})
		}
	}
}

func campaign(t *testing.T, w *world, seed uint64, most int) {
	random := randomly(seed, uint64(most))
	var h history.History
	links := make([]*testutil.Link, 3)
	for i := range links {
		links[i] = w.campaigner(fmt.Sprint(i), most, random, &h)
	}
	for range 60 {
		w.fault(links, random)
		time.Sleep(random(6 * time.Second))
		if random(2) == 0 { // faults add up, but not for ever
			w.heal(links)
		}
	}
	w.heal(links)
	time.Sleep(30 * time.Second)

	if err := h.Check(); err != nil {
		t.Error(err)
	}
	w.eachAttemptOnce(most)
	if ticks := len(w.perTick()); ticks < 10 {
		t.Errorf("only %d ticks ran", ticks)
	}
}

// randomly returns a source of random durations less than d, which jobs may use too.
func randomly(seed, stream uint64) func(d time.Duration) time.Duration {
	rnd := rand.New(rand.NewPCG(seed, stream))
	var mu sync.Mutex
	return func(d time.Duration) time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return time.Duration(rnd.Int64N(int64(d)))
	}
}

// campaigner starts a replica whose runs take any time up to eight seconds, and are recorded in h.
func (w *world) campaigner(name string, most int, random func(time.Duration) time.Duration, h *history.History) *testutil.Link {
	w.t.Helper()
	locks, link := w.wired(core.TTL(3 * time.Second))
	r := w.replicaOn(name, locks, AtLeastOnce(most))
	r.job(gocron.CronJob("*/5 * * * * *", true), func(ctx context.Context) error {
		run, _ := FromContext(ctx)
		holder := fmt.Sprintf("%s, %s, attempt %d", r.name, stamp(run.Tick), run.Attempt)
		h.Granted("job", holder, run.FencingToken, time.Now())
		work := time.NewTimer(random(8 * time.Second))
		defer work.Stop()
		select {
		case <-work.C:
		case <-ctx.Done():
		}
		h.Ended("job", holder, run.FencingToken, time.Now())
		return ctx.Err()
	})
	r.sched.Start()
	return link
}

// fault is one of a node, or cuts off a replica.
func (w *world) fault(links []*testutil.Link, random func(time.Duration) time.Duration) {
	n := w.nodes[random(3)]
	switch random(8) {
	case 0:
		n.Hang()
	case 1:
		n.Down()
	case 2:
		n.Slow(random(300 * time.Millisecond))
	case 3:
		n.SlowReplies(random(300 * time.Millisecond))
	case 4:
		n.DropReplies(int(random(5)))
	case 5:
		n.Promote()
	case 6:
		n.Restart()
	case 7:
		links[random(3)].Cut()
	}
}

// heal ends the faults of all nodes and links.
func (w *world) heal(links []*testutil.Link) {
	for i := range links {
		links[i].Mend()
		w.nodes[i].Up()
	}
}

// eachAttemptOnce checks that no attempt at a tick was made twice, none beyond the most, and no first one late.
func (w *world) eachAttemptOnce(most int) {
	w.t.Helper()
	type attempt struct {
		tick time.Time
		n    int
	}
	seen := map[attempt]bool{}
	for _, r := range w.ran() {
		a := attempt{r.Tick.UTC(), r.Attempt}
		if seen[a] || a.n < 1 || a.n > most {
			w.t.Errorf("attempt %d at tick %v, on replica %s", a.n, a.tick, r.replica)
		}
		seen[a] = true
		if late := r.at.Sub(a.tick); a.n == 1 && late > time.Minute {
			w.t.Errorf("attempt %d at tick %v is late by %v", a.n, a.tick, late)
		}
	}
}
