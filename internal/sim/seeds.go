package sim

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

var (
	seeds   = flag.Int("sim.seeds", 2, "how many seeds each simulation runs at least")
	from    = flag.Uint64("sim.from", 0, "the first seed of each simulation")
	shrinks = flag.Int("sim.shrink", 150, "how many programs are tried to make one that fails smaller")
	span    = flag.Duration("sim.for", 0, "how long each simulation goes on with more seeds")
)

// Counts tell what a simulation reached, and how often.
type Counts map[string]int

func (c Counts) String() string {
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(c)) {
		parts = append(parts, fmt.Sprintf("%s %d", what, c[what]))
	}
	return strings.Join(parts, ", ")
}

// enough is how many seeds must reach everything, and how many failures end a simulation.
const (
	enough   = 100
	failures = 3
)

// Seeds runs trial for the seeds that the flags name, on all cores, each in a test of its own: -sim.seeds of them, and more
// for as long as -sim.for; of a trial that takes as long as so many others, one for each so many of -sim.seeds. In the environment, SEED=n stands for that seed alone. Trials must not be parallel, and count for
// themselves what they reach. If a hundred seeds or more never reach something of mustReach, the test fails.
func Seeds(t *testing.T, asLongAs int, mustReach []string, trial func(t *testing.T, seed uint64, reached Counts)) {
	t.Helper()
	if s := os.Getenv("SEED"); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		reached := Counts{}
		trial(t, seed, reached)
		t.Log(reached)
		return
	}
	r := &seedRun{trial: trial, total: Counts{}}
	r.run(t, asLongAs)
	t.Logf("%d seeds: %v", r.ran, r.total)
	if r.ran < enough {
		return
	}
	for _, what := range mustReach {
		if r.total[what] == 0 {
			t.Errorf("the simulation has gone blind: no %s", what)
		}
	}
}

// A seedRun runs the seeds of one test.
type seedRun struct {
	trial func(t *testing.T, seed uint64, reached Counts)

	mu     sync.Mutex
	total  Counts
	ran    int
	failed int
}

// run hands out seeds to a worker for each core.
func (r *seedRun) run(t *testing.T, asLongAs int) {
	next := make(chan uint64)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for seed := range next {
				r.one(t, seed)
			}
		})
	}
	began := time.Now()
	for n := 0; n*asLongAs < *seeds || time.Since(began) < *span; n++ {
		if r.isOver() {
			break
		}
		next <- *from + uint64(n)
	}
	close(next)
	workers.Wait()
}

func (r *seedRun) one(t *testing.T, seed uint64) {
	reached := Counts{}
	passed := t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
		defer func() {
			if t.Failed() {
				t.Logf("again: SEED=%d go test -run '^%s$' -count=1 -v", seed, strings.Split(t.Name(), "/")[0])
			}
		}()
		r.trial(t, seed, reached)
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ran++
	if !passed {
		r.failed++
	}
	for what, n := range reached {
		r.total[what] += n
	}
}

func (r *seedRun) isOver() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed >= failures
}
