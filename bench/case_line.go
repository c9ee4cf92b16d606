package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"time"
)

const (
	goalLineWaiters = 10_000
	goalLineHeap    = 1000 // bytes of each waiter
)

// line has many goroutines of one Locker wait for one key.
func line(ctx context.Context, c config) ([]section, error) {
	s := section{
		title: "Many local waiters",
		text: `A Locker holds a key, and so many goroutines ask it for that key, one after another. Then it is released, and each of them
releases it as soon as it has it. Heap is what the waiting added, after a garbage collection, and what the goal is about. Stack is
that of the caller's goroutine, which it has for as long as it asks, whoever it asks. Goroutines are those that were added to the
callers'. Out of order: pairs of which the one that had asked later was served first.`,
	}
	t := table{head: []string{"nodes", "waiters", "peer", "heap each", "stack each", "goroutines", "out of order", "failed", "to serve all", "each"}, text: 2}
	less := ""
	if c.lineWaiters < goalLineWaiters {
		less = plural(c.lineWaiters, "waiter")
	}
	p := peer{name: lockkitOpen, open: openLockkit}
	for _, n := range []int{1, 3} {
		what := fmt.Sprintf("10,000 local waiters, %s: ", plural(n, "node"))
		order := &goal{what: what + "served out of order", want: "none", less: less}
		heap := &goal{what: what + "heap of each", want: "≤ 1 kB", less: less}
		s.goals = append(s.goals, order, heap)
		err := onNodes(n, 0, func(on *nodes) error {
			q, err := lineUp(ctx, c.lineWaiters, p, on)
			if err != nil {
				return err
			}
			out := inversions(q.served)
			t.add(strconv.Itoa(n), strconv.Itoa(c.lineWaiters), p.name, fmt.Sprintf("%d B", q.heap), fmt.Sprintf("%d B", q.stack),
				strconv.Itoa(q.goroutines), strconv.Itoa(out), strconv.Itoa(len(q.failed)), short(q.took), short(q.took/time.Duration(c.lineWaiters)))
			order.add(p.name, fmt.Sprintf("%d, %d failed", out, len(q.failed)), out+len(q.failed) == 0)
			heap.add(p.name, fmt.Sprintf("%d B", q.heap), q.heap <= goalLineHeap)
			s.noteSome(q.failed, "%s, %s: calls failed", plural(n, "node"), p.name)
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", plural(n, "node"), err)
		}
	}
	s.add("", &t)
	return []section{s}, nil
}

// A queue is what became of waiters.
type queue struct {
	heap       int   // bytes per waiter, beside those of its goroutine
	stack      int   // of that
	goroutines int   // beside their own
	served     []int // the waiters, in the order of their grants
	failed     []error
	took       time.Duration
}

func lineUp(ctx context.Context, n int, p peer, on *nodes) (q queue, err error) {
	l, err := p.open(ctx, on.addrs(), ttl)
	if err != nil {
		return q, err
	}
	defer l.close()
	const key = "bench:line"
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errHung)
	defer cancel()
	unlock, err := l.lock(ctx, key)
	if err != nil {
		return q, err
	}
	var (
		mu      sync.Mutex
		waiters sync.WaitGroup
		begun   = make(chan struct{}, 1)
		begin   = make([]chan struct{}, n)
	)
	bare := memory()
	for i := range begin {
		begin[i] = make(chan struct{})
		waiters.Go(func() {
			<-begin[i]
			begun <- struct{}{}
			unlock, err := l.lock(ctx, key)
			mu.Lock() // nobody else is served before the unlock
			if err != nil {
				q.failed = append(q.failed, err)
			} else {
				q.served = append(q.served, i)
			}
			mu.Unlock()
			if err == nil {
				err = unlock(ctx)
			}
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				q.failed = append(q.failed, err)
			}
		})
	}
	before, goroutines := memory(), runtime.NumGoroutine()
	// With a single processor each waiter runs until it blocks, so all of them ask in order. One that was
	// preempted, or had to help collecting garbage, would fall behind.
	processors, garbage := runtime.GOMAXPROCS(1), debug.SetGCPercent(-1)
	for i := range begin {
		close(begin[i])
		<-begun
		runtime.Gosched() // behind a waiter that was preempted
	}
	debug.SetGCPercent(garbage)
	runtime.GOMAXPROCS(processors)
	after := memory()
	q.heap, q.stack = per(n, before.HeapAlloc, after.HeapAlloc), per(n, bare.StackInuse, after.StackInuse)
	q.goroutines = runtime.NumGoroutine() - goroutines

	start := time.Now()
	err = unlock(ctx)
	if !returned(&waiters, patience+grace) {
		return q, errHung
	}
	q.took = time.Since(start)
	return q, errors.Join(err, context.Cause(ctx))
}
