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
func writeLockers(docs string, r run, _ section, sections []section) error {
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
	text := document(r, runtime.NumCPU(), sections, below)
	return os.WriteFile(filepath.Join(docs, "benchmarks.md"), []byte(text), 0o644)
}

const queueIntro = `# queuelock beside asynq

<!-- Written by make bench-queue. Do not edit. -->

The tasks of asynq behind queuelock and without it, in one run on one machine: the asynq servers are in this process, which
shares the cores with the ` + "`redis-server`" + ` processes that it starts, one for the queue and others for locks. queuelock
has its defaults, except for the key. What runs beside disturbs: ratios to bare asynq in the same run say more than times.

`

const cronIntro = `# What ticks of cronlock cost

<!-- Written by make bench-cron. Do not edit. -->

Jobs of cronlock in one run on one machine: the replicas are in this process, which shares the cores with the ` + "`redis-server`" + `
processes that it starts. Requests say what a tick costs anywhere; CPU and lateness are those of this machine.

`

const httpIntro = `# What requests through httplock cost

<!-- Written by make bench-http. Do not edit. -->

Requests for net/http with httplock and without it, in one run on one machine: clients and servers are in this process, which shares
the cores with the ` + "`redis-server`" + ` processes that it starts. What runs beside disturbs times most, and CPU least: compare within the run.

`

const setsIntro = `# What several keys at once cost

<!-- Written by make bench-sets. Do not edit. -->

DoAll beside nested Do, in one run on one machine: the callers are in this process, which shares the cores with the ` + "`redis-server`" + `
processes that it starts. Compare within the run.

`

const semaphoreIntro = `# What permits of a semaphore cost

<!-- Written by make bench-semaphore. Do not edit. -->

core/semaphore beside plain locks, in one run on one machine: the callers are in processes of their own, which share the cores with the
` + "`redis-server`" + ` processes. Compare within the run.

`

// writeQueue writes benchmarks/queue.md into the directory docs.
func writeQueue(docs string, r run, goals section, sections []section) error {
	return writeBelow(docs, "queue.md", queueIntro+r.markdown(append(sections, goals)))
}

// writeCron writes benchmarks/cron.md.
func writeCron(docs string, r run, goals section, sections []section) error {
	return writeBelow(docs, "cron.md", cronIntro+r.markdown(append(sections, goals)))
}

// writeHTTP writes benchmarks/http.md.
func writeHTTP(docs string, r run, goals section, sections []section) error {
	return writeBelow(docs, "http.md", httpIntro+r.markdown(append(sections, goals)))
}

// writeSets writes benchmarks/sets.md.
func writeSets(docs string, r run, goals section, sections []section) error {
	return writeBelow(docs, "sets.md", setsIntro+r.markdown(append(sections, goals)))
}

// writeSemaphore writes benchmarks/semaphore.md.
func writeSemaphore(docs string, r run, goals section, sections []section) error {
	return writeBelow(docs, "semaphore.md", semaphoreIntro+r.markdown(append(sections, goals)))
}

func writeBelow(docs, name, text string) error {
	dir := filepath.Join(docs, "benchmarks")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644)
}

// markdown is that of the sections, and of the run.
func (r run) markdown(sections []section) string {
	var text strings.Builder
	for _, s := range sections {
		text.WriteString(s.markdown("") + "\n")
	}
	return text.String() + r.String()
}
