package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

const intro = `# Benchmarks

<!-- Written by make bench. Do not edit. -->

lockkit beside other ways to lock with Redis, in one run on one machine: this process and the ` + "`redis-server`" + ` processes
share its cores, so numbers show what work costs, not what a larger set of machines can do. Compare within a table. What
runs beside disturbs; min–max shows by how much.

- Loops are closed: each goroutine begins a pair when its last one has ended. A slice lasts until each goroutine has had
  %d pairs on average, if that takes longer than planned, and up to five times as long.
- Peers take turns in short slices, round after round. A rate is the median of the rounds; "to redsync" is the median of
  the ratios within a round; percentiles are over all rounds. The first round is not counted. Nor is one in which calls of a
  peer did not return within %v after its end: the table says that it hung. Calls of lockkit that hang fail the run.
- All use a TTL of %v, the defaults of their libraries and of their clients, and connections of their own. redislock and the
  raw ones ask once and never wait; nobody holds their keys, but in the cases about waiting, which say how peers wait.
- A peer for a single Redis is in the tables of one node only. rueidislock spreads keys of one client, not nodes, so it is
  one of them (majority of 1 key, without tracking of its own changes, as its manual advises).
- Raw is ` + "`SET NX PX`" + ` and a script that compares and deletes: what a lock costs at least, without renewal, fencing tokens, waiting
  or a word on loss. Auto-pipelined: callers share connections, and what comes at the same time travels together.
- What queuelock makes of asynq's tasks is in [another file](benchmarks/queue.md), what ticks of cronlock cost in
  [a third](benchmarks/cron.md), and what requests through httplock cost in [a fourth](benchmarks/http.md).
- lockkit renews, counts fencing tokens and checks clocks in all cases, and has its restart guard on for 3 and 5 nodes. Open:
  it has clients of its own. New: it was given clients with go-redis' defaults.

`

// A run is when and where measuring took place.
type run struct {
	config config
	redis  string
	began  time.Time
	took   time.Duration
}

func (r run) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "This run: %s, %s, %v. %s, %d cores, %s/%s, %s, Redis %s.", r.config.name, r.began.UTC().Format("2006-01-02 15:04 UTC"),
		r.took.Round(time.Second), processor(), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version(), r.redis)
	if r.config.rounds > 0 {
		fmt.Fprintf(&b, " %d rounds of %v.", r.config.rounds, r.config.measure)
	}
	b.WriteString(" " + strings.Join(versions(), ", ") + ".\n")
	return b.String()
}

// versions are those of the peers' modules.
func versions() []string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return nil
	}
	var found []string
	for _, m := range info.Deps {
		switch m.Path {
		case "github.com/go-redsync/redsync/v4", "github.com/bsm/redislock", "github.com/redis/rueidis", "github.com/redis/go-redis/v9", "github.com/hibiken/asynq":
			found = append(found, m.Path+" "+m.Version)
		}
	}
	return found
}

// processor is the name of the CPU, where the system tells.
func processor() string {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown processor"
	}
	for line := range strings.Lines(string(info)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown processor"
}

// writeLockers writes benchmarks.md into the directory docs, and the charts into benchmarks below it.
func writeLockers(docs string, r run, sections []section) error {
	const below = "benchmarks"
	charts := filepath.Join(docs, below)
	old, err := filepath.Glob(filepath.Join(charts, "*.svg"))
	if err != nil {
		return err
	}
	for _, file := range old {
		if err := os.Remove(file); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(charts, 0o755); err != nil {
		return err
	}
	for _, s := range sections {
		for _, c := range s.charts {
			if err := c.write(charts); err != nil {
				return err
			}
		}
	}
	text := fmt.Sprintf(intro, waves, patience, ttl) + r.markdown(sections, below)
	return os.WriteFile(filepath.Join(docs, "benchmarks.md"), []byte(text), 0o644)
}

const queueIntro = `# queuelock beside asynq

<!-- Written by make bench-queue. Do not edit. -->

The tasks of asynq behind queuelock and without it, in one run on one machine: the asynq servers are in this process, which
shares the cores with the ` + "`redis-server`" + ` processes that it starts, one for the queue and others for locks. queuelock
has its defaults, but for the key. What runs beside disturbs: ratios to bare asynq in the same run say more than times.

`

const cronIntro = `# What ticks of cronlock cost

<!-- Written by make bench-cron. Do not edit. -->

Jobs of cronlock in one run on one machine: the replicas are in this process, which shares the cores with the ` + "`redis-server`" + `
processes that it starts. Requests say what a tick costs anywhere; CPU and lateness are those of this machine.

`

const httpIntro = `# What requests through httplock cost

<!-- Written by make bench-http. Do not edit. -->

Requests for net/http with httplock and without it, in one run on one machine: clients and servers are in this process, which shares
the cores with the ` + "`redis-server`" + ` processes that it starts. What runs beside disturbs: differences to the bare handler in the same run
say more than times.

`

// writeQueue writes benchmarks/queue.md into the directory docs.
func writeQueue(docs string, r run, sections []section) error {
	return writeBelow(docs, "queue.md", queueIntro+r.markdown(sections, ""))
}

// writeCron writes benchmarks/cron.md.
func writeCron(docs string, r run, sections []section) error {
	return writeBelow(docs, "cron.md", cronIntro+r.markdown(sections, ""))
}

// writeHTTP writes benchmarks/http.md.
func writeHTTP(docs string, r run, sections []section) error {
	return writeBelow(docs, "http.md", httpIntro+r.markdown(sections, ""))
}

func writeBelow(docs, name, text string) error {
	dir := filepath.Join(docs, "benchmarks")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644)
}

// markdown is that of the run and its sections, with charts below the directory charts.
func (r run) markdown(sections []section, charts string) string {
	var text strings.Builder
	text.WriteString(r.String())
	for _, s := range sections {
		text.WriteString("\n" + s.markdown(charts))
	}
	return text.String()
}
