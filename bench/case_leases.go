package main

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"time"
)

// leases holds many locks at once, and lets the peers that do so renew them.
func leases(ctx context.Context, c config) ([]section, error) {
	every := c.leases.ttl / 3
	s := section{
		title: "Held leases",
		text: fmt.Sprintf(`So many locks are taken, with a TTL of %v, and held for %v, the time after which each is renewed. Of that time: CPU of
this process in %% of one core; requests that each server got per second, and its CPU. Memory is what the locks added
after a garbage collection, keys included; goroutines are the most that were there beside those of before. Lost: those that
had ended when they were to be released. Failed: those that were not granted, or whose release was not confirmed. Only
peers that renew are here, one after another.`, c.leases.ttl, every),
	}
	t := table{head: []string{"nodes", "leases", "peer", "client CPU", "server CPU", "requests/s and node", "heap each", "stack each", "goroutines", "lost", "failed", "to take all", "to release all"}, text: 2}
	for _, n := range []int{1, 3} {
		heap, cpu, goroutines, lost := leaseGoals(&s, n, c.leases)
		err := eachHolder(n, 0, func(p peer, on *nodes) error {
			h, err := hold(ctx, c.leases, p, on)
			if err != nil {
				return err
			}
			percent := func(d time.Duration) string { return fmt.Sprintf("%.1f %%", 100*d.Seconds()/h.held.Seconds()) }
			t.add(strconv.Itoa(n), strconv.Itoa(c.leases.leases), p.name, percent(h.client), percent(h.servers.process),
				rate(float64(h.servers.requests)/h.held.Seconds()), fmt.Sprintf("%d B", h.heap), fmt.Sprintf("%d B", h.stack),
				strconv.Itoa(h.goroutines), strconv.Itoa(len(h.lost)), strconv.Itoa(len(h.failed)), short(h.take), short(h.release))
			heap.add(p.name, fmt.Sprintf("%d B", h.heap), h.heap <= goalHeap)
			cpu.add(p.name, percent(h.client), h.client.Seconds() <= goalCPU*h.held.Seconds())
			goroutines.add(p.name, strconv.Itoa(h.goroutines), h.goroutines <= goalGoroutinesPerNode*n)
			lost.add(p.name, fmt.Sprintf("%d, %d", len(h.lost), len(h.failed)), len(h.lost)+len(h.failed) == 0)
			s.noteSome(h.lost, "%s, %s: leases lost", plural(n, "node"), p.name)
			s.noteSome(h.failed, "%s, %s: leases not granted, or releases not confirmed", plural(n, "node"), p.name)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	s.add("", &t)
	return []section{s}, nil
}

// A holding is what it takes to hold leases.
type holding struct {
	held, take, release time.Duration
	client              time.Duration
	servers             serverUse // per node
	heap, stack         int       // bytes per lease
	goroutines          int
	lost, failed        []error
}

func hold(ctx context.Context, c leaseConfig, p peer, on *nodes) (h holding, err error) {
	l, err := openHolder(ctx, p, on, c)
	if err != nil {
		return h, err
	}
	defer l.close()
	// Connections and what else is made once do not count.
	warm, errs := holdAll(ctx, l, hands, func(i int) string { return "bench:warm:" + strconv.Itoa(i) })
	if err := some(append(errs, releaseAll(ctx, warm)...)); err != nil {
		return h, err
	}
	hs := make(holdings, c.leases)
	before, goroutines := memory(), runtime.NumGoroutine()
	start := time.Now()
	h.failed = hs.take(ctx, l)
	h.take = time.Since(start)
	after := memory()
	h.heap, h.stack = per(c.leases, before.HeapAlloc, after.HeapAlloc), per(c.leases, before.StackInuse, after.StackInuse)

	uses, err := on.use(ctx, p.command)
	if err != nil {
		return h, err
	}
	start, cpu := time.Now(), clientCPU()
	for time.Since(start) < c.ttl/3 {
		time.Sleep(min(20*time.Millisecond, c.ttl/3-time.Since(start)))
		h.goroutines = max(h.goroutines, runtime.NumGoroutine()-goroutines)
	}
	h.held, h.client = time.Since(start), clientCPU()-cpu
	now, err := on.use(ctx, p.command)
	if err != nil {
		return h, err
	}
	h.servers = spent(uses, now)

	start = time.Now()
	h.lost = hs.lost()
	h.failed = append(h.failed, hs.release(ctx)...)
	h.release = time.Since(start)
	return h, nil
}

const (
	goalHeap              = 1000 // bytes of each lease
	goalCPU               = 0.1  // of a core
	goalGoroutinesPerNode = 32
)

// leaseGoals adds the goals of leases held on n nodes.
func leaseGoals(s *section, n int, c leaseConfig) (heap, cpu, goroutines, lost *goal) {
	add := func(what, want string) *goal {
		g := &goal{
			what: fmt.Sprintf("%s, 100,000 leases, TTL 30 s: %s", plural(n, "node"), what), want: want,
			less: c.less(leaseConfig{100_000, 30 * time.Second}),
		}
		s.goals = append(s.goals, g)
		return g
	}
	return add("heap of each", "≤ 1 kB"),
		add("client CPU, of one core", fmt.Sprintf("≤ %.0f %%", 100*goalCPU)),
		add("goroutines", fmt.Sprintf("O(nodes): ≤ %d", goalGoroutinesPerNode*n)),
		add("lost, or failed", "none")
}

func memory() runtime.MemStats {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what finalizers and pools kept alive
	runtime.ReadMemStats(&m)
	return m
}

func per(n int, before, after uint64) int {
	return max(0, int(after)-int(before)) / n
}
