// Bench measures lockkit beside other ways to lock with Redis, side by side in one run, on servers that it starts.
//
//	make bench               # all cases, and docs/benchmarks.md
//	make bench BENCH=short   # a look, in about three minutes
//	make bench-queue         # queuelock beside asynq alone, and docs/benchmarks/queue.md
//	make bench-cron          # what ticks of cronlock cost, and docs/benchmarks/cron.md
//	make bench-sets          # several keys at once beside one by one, and docs/benchmarks/sets.md
//	make bench-http          # when a client has an answer through httplock, and docs/benchmarks/http.md
//	make bench-semaphore     # what permits cost, beside plain locks, and docs/benchmarks/semaphore.md
//
// It is a module of its own, so that what it compares with is a dependency of nothing else. It runs on Linux and macOS.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/redis/go-redis/v9/logging"
)

// A config is how much is measured.
type config struct {
	name          string
	warm, measure time.Duration // of a slice
	rounds        int
	goroutines    []int

	distantGoroutines           []int
	distantWarm, distantMeasure time.Duration
	distantRounds               int

	hungWarm, hungMeasure time.Duration
	hungRounds            int

	leases leaseConfig

	outage      leaseConfig
	outageLasts time.Duration

	closing leaseConfig

	handoffKeys, handoffsEach int // hand-offs of each key and kind

	crowdWarm, crowdMeasure   time.Duration
	greedyWarm, greedyMeasure time.Duration
	wakingWarm, wakingMeasure time.Duration

	passes      int
	lineWaiters int
	idle        time.Duration

	limits limitConfig
}

// A leaseConfig is how many leases are held.
type leaseConfig struct {
	leases int
	ttl    time.Duration
}

// less says what c is if that is less than a goal's, and is empty otherwise.
func (c leaseConfig) less(than leaseConfig) string {
	if c.leases >= than.leases && c.ttl == than.ttl {
		return ""
	}
	return fmt.Sprintf("%d leases, TTL %v", c.leases, c.ttl)
}

var full = config{
	name: "full",
	warm: 50 * time.Millisecond, measure: 400 * time.Millisecond, rounds: 5, goroutines: []int{1, 16, 128, 1024},
	distantGoroutines: []int{1, 128}, distantWarm: 100 * time.Millisecond, distantMeasure: 400 * time.Millisecond, distantRounds: 3,
	hungWarm: time.Second, hungMeasure: 4 * time.Second, hungRounds: 3,
	leases: leaseConfig{100_000, 30 * time.Second},
	outage: leaseConfig{3000, 10 * time.Second}, outageLasts: 1500 * time.Millisecond,
	closing:     leaseConfig{60_000, 10 * time.Minute},
	handoffKeys: 10, handoffsEach: 12,
	crowdWarm: time.Second, crowdMeasure: 4 * time.Second, greedyWarm: 500 * time.Millisecond, greedyMeasure: 4 * time.Second,
	wakingWarm: 1200 * time.Millisecond, wakingMeasure: 2500 * time.Millisecond,
	passes: 60, lineWaiters: 10_000, idle: 10 * time.Second,
	limits: limitConfig{rounds: 3, warm: 400 * time.Millisecond, uncontended: 1500 * time.Millisecond, saturated: 2 * time.Second},
}

var quick = config{
	name: "short",
	warm: 20 * time.Millisecond, measure: 120 * time.Millisecond, rounds: 2, goroutines: []int{1, 128, 1024},
	distantGoroutines: []int{1, 128}, distantWarm: 30 * time.Millisecond, distantMeasure: 120 * time.Millisecond, distantRounds: 1,
	hungWarm: time.Second, hungMeasure: time.Second, hungRounds: 1,
	leases: leaseConfig{3000, 6 * time.Second},
	outage: leaseConfig{1000, 4 * time.Second}, outageLasts: 600 * time.Millisecond,
	closing:     leaseConfig{10_000, 10 * time.Minute},
	handoffKeys: 5, handoffsEach: 2,
	crowdWarm: 200 * time.Millisecond, crowdMeasure: 800 * time.Millisecond, greedyWarm: 200 * time.Millisecond, greedyMeasure: 800 * time.Millisecond,
	wakingWarm: 100 * time.Millisecond, wakingMeasure: 400 * time.Millisecond,
	passes: 15, lineWaiters: 2000, idle: time.Second,
	limits: limitConfig{rounds: 1, warm: 200 * time.Millisecond, uncontended: 300 * time.Millisecond, saturated: 500 * time.Millisecond},
}

type benchCase struct {
	name    string
	measure func(context.Context, config) ([]section, error)
}

var cases = []benchCase{
	{"uncontended", uncontended},
	{"distance", distance},
	{"hung", hung},
	{"held", held},
	{"leases", leases},
	{"outage", outage},
	{"close", closing},
	{"handoff", handoff},
	{"crowd", crowd},
	{"greedy", greedy},
	{"waking", waking},
	{"local", local},
	{"line", line},
	{"idle", idle},
}

var queueCases = []benchCase{
	{"hot", hotKeys},
	{"cutoff", sickServer},
	{"cost", queueCost},
}

var cronCases = []benchCase{{"cron", cron}}

var setCases = []benchCase{{"sets", sets}}

var httpCases = []benchCase{{"http", httpCost}}

var semaphoreCases = []benchCase{
	{"uncontended", freeLimits},
	{"saturated", crowdedLimits},
}

func caseNames(cases []benchCase) string {
	var names []string
	for _, c := range cases {
		names = append(names, c.name)
	}
	return strings.Join(names, ", ")
}

func main() {
	if isChild() {
		logging.Disable()
		serve()
		return
	}
	isShort := flag.Bool("short", false, "measure less, in about three minutes")
	leases := flag.Int("leases", 0, "how many leases the case leases holds, if not 0")
	outageLeases := flag.Int("outage-leases", 0, "likewise for the case outage")
	closeLeases := flag.Int("close-leases", 0, "likewise for the case close")
	only := flag.String("case", "", "measure this case alone: "+caseNames(cases)+"; with -queue: "+caseNames(queueCases)+"; with -semaphore: "+caseNames(semaphoreCases))
	queue := flag.Bool("queue", false, "measure queuelock beside asynq alone")
	cron := flag.Bool("cron", false, "measure cronlock alone")
	http := flag.Bool("http", false, "measure httplock beside a bare handler")
	severalKeys := flag.Bool("sets", false, "measure several keys at once beside one by one")
	permits := flag.Bool("semaphore", false, "measure permits of semaphores beside plain locks")
	docs := flag.String("docs", "", "directory to write benchmarks.md into, or a file of benchmarks; without it, tables are only printed")
	flag.Parse()
	c := full
	if *isShort {
		c = quick
	}
	c.leases.leases = cmp.Or(*leases, c.leases.leases)
	c.outage.leases = cmp.Or(*outageLeases, c.outage.leases)
	c.closing.leases = cmp.Or(*closeLeases, c.closing.leases)
	logging.Disable() // go-redis would print each failed dial
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	what := report{cases: cases, peers: []string{lockkitOpen, lockkitNew}, write: writeLockers}
	if *queue {
		what = report{cases: queueCases, peers: []string{lockkitQueue}, write: writeQueue}
		c = config{name: "queue"}
	}
	if *cron {
		what = report{cases: cronCases, peers: []string{lockkitCron}, write: writeCron}
		c = config{name: "cron"}
	}
	if *http {
		what = report{cases: httpCases, peers: []string{lockkitHTTP}, write: writeHTTP}
		c = config{name: "http"}
	}
	if *severalKeys {
		what = report{cases: setCases, peers: []string{lockkitSets}, write: writeSets}
		c.name = "sets"
		c.measure, c.rounds = 2*c.measure, 2*c.rounds
	}
	if *permits {
		what = report{cases: semaphoreCases, peers: []string{lockkitSemaphore}, write: writeSemaphore}
		c = config{name: "semaphore", limits: c.limits}
	}
	if err := measure(ctx, what, c, *only, *docs); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// A report is what is measured together and written into one file.
type report struct {
	cases []benchCase
	peers []string // that goals are about
	write func(docs string, r run, goals section, sections []section) error
}

func measure(ctx context.Context, what report, c config, only, docs string) error {
	r := run{config: c, began: time.Now()}
	err := onNodes(1, 0, func(on *nodes) (err error) {
		r.redis, err = on.version(ctx)
		return err
	})
	if err != nil {
		return err
	}
	var sections []section
	for _, one := range what.cases {
		if only != "" && only != one.name {
			continue
		}
		start := time.Now()
		measured, err := one.measure(ctx, c)
		if err != nil {
			return fmt.Errorf("%s: %w", one.name, err)
		}
		fmt.Fprintf(os.Stderr, "bench: %s took %v\n", one.name, time.Since(start).Round(time.Second))
		for _, s := range measured {
			fmt.Println(s.markdown(""))
		}
		sections = append(sections, measured...)
	}
	if len(sections) == 0 {
		return fmt.Errorf("there is no case %q", only)
	}
	r.took = time.Since(r.began)
	goals := goalsOf(sections, what.peers...)
	fmt.Println(goals.markdown(""))
	fmt.Print(r)
	if docs == "" {
		return nil
	}
	return what.write(docs, r, goals, sections)
}
