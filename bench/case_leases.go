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
	every := c.leaseTTL / 3
	s := section{
		title: "Held leases",
		text: fmt.Sprintf(`So many locks are taken, with a TTL of %v, and held for %v, the time after which each is renewed. Of that time: CPU of
this process in %% of one core; requests that each server got per second, and its CPU. Memory is what the locks added
after a garbage collection, with the 100 bytes or so that this benchmark keeps for each; goroutines are the most that
were there beside those of before. Failed: those that were not granted, that had been lost when they were to be released,
or whose release was not confirmed. Only peers that renew are here, one after another.`, c.leaseTTL, every),
	}
	t := table{head: []string{"nodes", "leases", "peer", "client CPU", "server CPU", "requests/s and node", "heap each", "stack each", "goroutines", "failed", "to take all", "to release all"}, text: 2}
	for _, n := range []int{1, 3} {
		for _, p := range peersFor(n) {
			if !p.renews {
				continue
			}
			err := onNodes(n, 0, func(on *nodes) error {
				h, err := hold(ctx, c, p, on)
				if err != nil {
					return err
				}
				percent := func(d time.Duration) string { return fmt.Sprintf("%.1f %%", 100*d.Seconds()/h.held.Seconds()) }
				t.add(strconv.Itoa(n), strconv.Itoa(c.leases), p.name, percent(h.client), percent(h.servers.process),
					rate(float64(h.servers.requests)/h.held.Seconds()), fmt.Sprintf("%d B", h.heap), fmt.Sprintf("%d B", h.stack),
					strconv.Itoa(h.goroutines), strconv.Itoa(h.failed), short(h.take), short(h.release))
				if h.err != nil {
					s.notes = append(s.notes, fmt.Sprintf("%s, %s: of the leases that failed: %v", plural(n, "node"), p.name, h.err))
				}
				return nil
			})
			if err != nil {
				return nil, fmt.Errorf("%s, %s: %w", plural(n, "node"), p.name, err)
			}
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
	failed              int
	err                 error // some of those that failed
}

func hold(ctx context.Context, c config, p peer, on *nodes) (h holding, err error) {
	l, err := p.open(ctx, on.addrs(), c.leaseTTL)
	if err != nil {
		return h, err
	}
	defer l.close()
	key := func(i int) string { return "bench:lease:" + strconv.Itoa(i) }
	// Connections and what else is made once do not count.
	warm, errs := holdAll(ctx, l, hands, func(i int) string { return "bench:warm:" + strconv.Itoa(i) })
	if err := some(append(errs, releaseAll(ctx, warm)...)); err != nil {
		return h, err
	}
	before, goroutines := memory(), runtime.NumGoroutine()
	start := time.Now()
	locks, errs := holdAll(ctx, l, c.leases, key)
	h.take = time.Since(start)
	after := memory()
	h.heap, h.stack = per(c.leases, before.HeapAlloc, after.HeapAlloc), per(c.leases, before.StackInuse, after.StackInuse)

	uses, err := on.use(ctx, p.command)
	if err != nil {
		return h, err
	}
	start, cpu := time.Now(), clientCPU()
	for time.Since(start) < c.leaseTTL/3 {
		time.Sleep(min(20*time.Millisecond, c.leaseTTL/3-time.Since(start)))
		h.goroutines = max(h.goroutines, runtime.NumGoroutine()-goroutines)
	}
	h.held, h.client = time.Since(start), clientCPU()-cpu
	now, err := on.use(ctx, p.command)
	if err != nil {
		return h, err
	}
	h.servers = spent(uses, now)

	start = time.Now()
	errs = append(errs, releaseAll(ctx, locks)...)
	h.release = time.Since(start)
	h.failed, h.err = len(errs), some(errs)
	return h, nil
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
