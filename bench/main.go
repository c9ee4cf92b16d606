// Bench measures lockkit beside other ways to lock with Redis, side by side in one run, on servers that it starts.
//
//	make bench               # all cases, and docs/benchmarks.md
//	make bench BENCH=short   # a look, in about a minute
//
// It is a module of its own, so that what it compares with is a dependency of nothing else. It runs on Linux and macOS.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
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

	leases   int
	leaseTTL time.Duration
}

var full = config{
	name: "full",
	warm: 50 * time.Millisecond, measure: 400 * time.Millisecond, rounds: 5, goroutines: []int{1, 16, 128, 1024},
	distantGoroutines: []int{1, 128}, distantWarm: 100 * time.Millisecond, distantMeasure: 400 * time.Millisecond, distantRounds: 3,
	hungWarm: time.Second, hungMeasure: 2 * time.Second, hungRounds: 3,
	leases: 3000, leaseTTL: 30 * time.Second,
}

var quick = config{
	name: "short",
	warm: 20 * time.Millisecond, measure: 120 * time.Millisecond, rounds: 2, goroutines: []int{1, 128},
	distantGoroutines: []int{1, 128}, distantWarm: 30 * time.Millisecond, distantMeasure: 120 * time.Millisecond, distantRounds: 1,
	hungWarm: time.Second, hungMeasure: time.Second, hungRounds: 1,
	leases: 3000, leaseTTL: 6 * time.Second,
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
}

func main() {
	isShort := flag.Bool("short", false, "measure less, in about a minute")
	leases := flag.Int("leases", full.leases, "how many leases to hold")
	only := flag.String("case", "", "measure this case alone: uncontended, distance, hung, held or leases")
	docs := flag.String("docs", "", "directory to write benchmarks.md into; without it, tables are only printed")
	flag.Parse()
	c := full
	if *isShort {
		c = quick
	}
	c.leases = *leases
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
	fmt.Print(r)
	if docs == "" {
		return nil
	}
	return write(docs, r, sections)
}
