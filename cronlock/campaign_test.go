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
	rnd := rand.New(rand.NewPCG(seed, uint64(most)))
	var mu sync.Mutex // of rnd, which jobs use too
	random := func(d time.Duration) time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return time.Duration(rnd.Int64N(int64(d)))
	}
	var h history.History
	links := make([]*testutil.Link, 3)
	for i := range links {
		locks, link := w.wired(core.TTL(3 * time.Second))
		links[i] = link
		r := w.replicaOn(fmt.Sprint(i), locks, AtLeastOnce(most))
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
	}
	for range 60 {
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
		time.Sleep(random(6 * time.Second))
		if random(2) == 0 { // faults add up, but not for ever
			for i := range links {
				links[i].Mend()
				w.nodes[i].Up()
			}
		}
	}
	for i := range links {
		links[i].Mend()
		w.nodes[i].Up()
	}
	time.Sleep(30 * time.Second)

	if err := h.Check(); err != nil {
		t.Error(err)
	}
	runs := w.ran()
	seen := map[time.Time]map[int]bool{}
	for _, r := range runs {
		tick := r.Tick.UTC()
		if seen[tick] == nil {
			seen[tick] = map[int]bool{}
		}
		if seen[tick][r.Attempt] || r.Attempt < 1 || r.Attempt > most {
			t.Errorf("attempt %d at tick %v, on replica %s", r.Attempt, tick, r.replica)
		}
		seen[tick][r.Attempt] = true
		if late := r.at.Sub(tick); r.Attempt == 1 && late > time.Minute {
			t.Errorf("attempt %d at tick %v is late by %v", r.Attempt, tick, late)
		}
	}
	if len(seen) < 10 {
		t.Errorf("only %d ticks ran", len(seen))
	}
}
