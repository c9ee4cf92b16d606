package sim

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockkit/lockkit/internal/race"
)

var (
	seeds   = flag.Int("sim.seeds", 2, "how many seeds each simulation runs at least")
	from    = flag.Uint64("sim.from", 0, "the first seed of each simulation")
	shrinks = flag.Int("sim.shrink", 150, "how many runs are made to find a smaller program that fails")
	span    = flag.Duration("sim.for", 0, "how long each simulation goes on with more seeds")
)

// Counts are the events that a simulation reached, and how often it did.
type Counts map[string]int

func (c Counts) String() string {
	var parts []string
	for _, event := range slices.Sorted(maps.Keys(c)) {
		parts = append(parts, fmt.Sprintf("%s %d", event, c[event]))
	}

	return strings.Join(parts, ", ")
}

const (
	minSeedsToReach = 100 // a run of that many seeds must reach all of mustReach
	moreToReach     = 10  // it may take that many times its seeds to do so
	maxFailures     = 3   // that many failures end a simulation
)

// Seeds runs trial for the seeds that the flags choose, each in a subtest of its own, with a worker per CPU. It runs
// -sim.seeds seeds, and continues until -sim.for has passed. If one trial takes as long as asLongAs usual ones, pass
// that number: Seeds then runs -sim.seeds / asLongAs seeds, rounded up, and such trials are left out as sweeps are (see
// [race.SkipSweep]). If SEED=n is set in the environment, it runs only that seed, in the test itself, or in a fixed
// process if -sim.attempt is set. Trials must not call t.Parallel, and count the events that they reach in reached.
//
// A run of a hundred seeds or more must reach each event of mustReach. If one is missing at the end, Seeds runs more
// seeds until it is reached, because the order of goroutines may keep a rare event out of any hundred seeds. If ten times
// as many seeds do not reach it either, the test fails.
func Seeds(t *testing.T, asLongAs int, mustReach []string, trial func(t *testing.T, seed uint64, reached Counts)) {
	t.Helper()

	s := simulation{
		run: func(t *testing.T, seed uint64, reached Counts) {
			defer func() { // deferred, because a trial may end with Fatal
				if t.Failed() && !isFixed() {
					_, _, text := repetition{test: testOf(t), seed: seed}.find()
					t.Log(text)
				}
			}()
			trial(t, seed, reached)
		},
		shrink: func(_ repetition, output string) string { return output },
	}
	s.runSeeds(t, asLongAs, mustReach)
}

// A simulation runs seeds.
type simulation struct {
	run func(t *testing.T, seed uint64, reached Counts)
	// shrink returns the output of the smallest program that fails in a fixed process. The program of the seed has failed
	// there with an output.
	shrink func(r repetition, output string) string
	build  func() (program string, err error) // see [repetition]
}

// runSeeds is [Seeds] for a simulation that can shrink its programs.
func (s simulation) runSeeds(t *testing.T, asLongAs int, mustReach []string) {
	t.Helper()

	if asLongAs > 1 {
		race.SkipSweep(t)
	}

	if text := os.Getenv("SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		s.runOne(t, seed)
		return
	}
	if *attempt != 0 {
		t.Fatal("-sim.attempt needs SEED=n in the environment")
	}

	r := &seedRun{trial: s.run, total: Counts{}}
	began := time.Now()
	r.runWhile(t, func() bool { return r.begun*asLongAs < *seeds || time.Since(began) < *span })

	var missing []string
	if r.begun >= minSeedsToReach {
		missing = r.lookFor(t, mustReach)
	}

	t.Logf("%d seeds: %v", r.begun, r.total)
	for _, event := range missing {
		t.Errorf("the simulation has gone blind: no %s", event)
	}
}

// CollectLess makes the garbage collector wait until the heap is five times the memory in use, until the test ends. If
// the environment sets GOGC, that value counts. It suits trials that use little memory and allocate a lot.
func CollectLess(t *testing.T) {
	if os.Getenv("GOGC") != "" {
		return
	}

	before := debug.SetGCPercent(400)
	t.Cleanup(func() { debug.SetGCPercent(before) })
}

// A seedRun runs the seeds of one test.
type seedRun struct {
	trial func(t *testing.T, seed uint64, reached Counts)
	begun int // seeds that were handed out

	mu     sync.Mutex // guards the fields below
	total  Counts
	failed int
}

// runWhile hands out the next seeds to the workers as long as more reports true, and waits for the workers. It stops
// early if too many seeds have failed.
func (r *seedRun) runWhile(t *testing.T, more func() bool) {
	next := make(chan uint64)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for seed := range next {
				r.runSeed(t, seed)
			}
		})
	}

	for !r.hasFailed() && more() {
		next <- *from + uint64(r.begun)
		r.begun++
	}

	close(next)
	workers.Wait()
}

// runSeed runs the trial of a seed in a subtest, and adds up its result.
func (r *seedRun) runSeed(t *testing.T, seed uint64) {
	reached := Counts{}
	passed := t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
		r.trial(t, seed, reached)
	})

	r.mu.Lock()
	defer r.mu.Unlock()

	if !passed {
		r.failed++
	}

	for event, n := range reached {
		r.total[event] += n
	}
}

// lookFor runs more seeds while some events are missing, up to moreToReach times those begun. It returns the events that
// are missing then.
func (r *seedRun) lookFor(t *testing.T, events []string) (missing []string) {
	most := r.begun * moreToReach
	r.runWhile(t, func() bool { return r.begun < most && r.missing(events) != nil })
	return r.missing(events)
}

// missing returns the events that no seed has reached yet.
func (r *seedRun) missing(events []string) (missing []string) {
	r.mu.Lock()
	defer r.mu.Unlock()

	for _, event := range events {
		if r.total[event] == 0 {
			missing = append(missing, event)
		}
	}
	return missing
}

// hasFailed reports whether maxFailures seeds have failed, so that no more are run.
func (r *seedRun) hasFailed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()

	return r.failed >= maxFailures
}
