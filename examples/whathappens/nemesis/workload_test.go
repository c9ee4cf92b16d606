package nemesis

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/testutil/locktest"
)

// A recorder adds the lines that a client writes to a record.
type recorder struct{ record *record }

func (r recorder) Write(line []byte) (int, error) {
	var e event
	err := json.Unmarshal(line, &e)
	if err != nil {
		return 0, err
	}

	r.record.add(e)
	return len(line), nil
}

// The workloads of sets and of permits are granted keys, and their log is judged as right.
func TestSetsAndPermitsAreGranted(t *testing.T) {
	t.Parallel()
	rec := newRecord()
	synctest.Test(t, func(t *testing.T) {
		first := locktest.New(t, core.TTL(ttl))
		ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
		defer cancel()

		var work sync.WaitGroup
		for i, l := range []*locktest.Locker{first, first.Replica(), first.Replica()} {
			c := &Client{Role: Role{Name: clientNames[i] + "1"}, locks: lockkit{l.Locker}, out: json.NewEncoder(recorder{rec})}
			for n, w := range workloads {
				if w.name != "sets" && w.name != "permits" {
					continue
				}
				for range w.workers {
					seed := uint64(100*i + n)
					work.Go(func() {
						turn := &turn{Client: c, name: w.name, random: rand.New(rand.NewPCG(seed, seed))}
						for ctx.Err() == nil {
							w.step(ctx, turn)
						}
					})
				}
			}
		}
		work.Wait()
	})

	events := rec.sorted()
	grants := map[string]int{} // by what is before the @
	for _, e := range events {
		if e.Kind == isGranted {
			key, _, _ := strings.Cut(e.Key, "@")
			grants[key]++
		}
	}
	for _, key := range []string{
		"sets 0", "sets 1", "sets 2", "sets 3", "sets 4", "permits 0", "slot 1 of permits 0", "slot 2 of permits 0",
	} {
		if grants[key] == 0 {
			t.Errorf("%q was not granted: %v", key, grants)
		}
	}
	found, summary := judge(events)
	if found != nil || !strings.Contains(summary, "verdict: clean") {
		t.Errorf("%q\n%s", found, summary)
	}
}
