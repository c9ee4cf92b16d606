// Bench measures lockkit beside other ways to lock with Redis, side by side in one run, on servers that it starts.
//
//	make bench               # all cases, and docs/benchmarks.md
//	make bench BENCH=short   # a look, in about two minutes
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
	closing: leaseConfig{60_000, 10 * time.Minute},
}

var quick = config{
	name: "short",
	warm: 20 * time.Millisecond, measure: 120 * time.Millisecond, rounds: 2, goroutines: []int{1, 128, 1024},
	distantGoroutines: []int{1, 128}, distantWarm: 30 * time.Millisecond, distantMeasure: 120 * time.Millisecond, distantRounds: 1,
	hungWarm: time.Second, hungMeasure: time.Second, hungRounds: 1,
	leases: leaseConfig{3000, 6 * time.Second},
	outage: leaseConfig{1000, 4 * time.Second}, outageLasts: 600 * time.Millisecond,
	closing: leaseConfig{10_000, 10 * time.Minute},
}

var cases = []struct {
	name    string
	measure func(context.Context, config) ([]section, error)
}{
	{"uncontended", uncontended},
	{"distance", distance},
	{"hung", hung},
	{"held", held},
	{"leases", leases},
	{"outage", outage},
	{"close", closing},
}

func caseNames() string {
	var names []string
	for _, c := range cases {
		names = append(names, c.name)
	}
	return strings.Join(names, ", ")
}

func main() {
	isShort := flag.Bool("short", false, "measure less, in about two minutes")
	leases := flag.Int("leases", 0, "how many leases the case leases holds, if not 0")
	outageLeases := flag.Int("outage-leases", 0, "likewise for the case outage")
	closeLeases := flag.Int("close-leases", 0, "likewise for the case close")
	only := flag.String("case", "", "measure this case alone: "+caseNames())
	docs := flag.String("docs", "", "directory to write benchmarks.md into; without it, tables are only printed")
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
	if err := measure(ctx, c, *only, *docs); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func measure(ctx context.Context, c config, only, docs string) error {
	r := run{config: c, began: time.Now()}
	err := onNodes(1, 0, func(on *nodes) (err error) {
		r.redis, err = on.version(ctx)
		return err
	})
	if err != nil {
		return err
	}
	var sections []section
	for _, one := range cases {
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
	goals := goalsOf(sections)
	fmt.Println(goals.markdown(""))
	fmt.Print(r)
	if docs == "" {
		return nil
	}
	return write(docs, r, append([]section{goals}, sections...))
}
