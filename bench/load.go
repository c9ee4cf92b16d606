package main

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// A load is a closed loop: each goroutine makes its next call when the one before has returned.
type load struct {
	goroutines int
	warm       time.Duration // before anything is counted
	measure    time.Duration
	// waves is how many calls per goroutine are measured at least, and one before that: goroutines that begin
	// together go on in waves, and less than a few would be a matter of luck. For that, warm and measure become up
	// to five times as long.
	waves int
	// call is made over and over, by each worker one at a time. It returns how long it took to have the lock.
	call func(ctx context.Context, worker int) (locked time.Duration, err error)
	// stopped, if there is one, is called when the time is over, and ends what holds up calls. What they took is
	// not counted then.
	stopped func() error
	// idle is how many goroutines there are when nothing runs; 0 for those that are there at the start.
	idle int
}

// A slice is what a load measured.
type slice struct {
	calls      int // those that returned within the time measured
	elapsed    time.Duration
	locked     histogram // until the lock was there
	whole      histogram // until call returned
	failures   int
	failure    error // the first one
	all        int   // calls, with those before and after the time measured
	goroutines int   // most seen, beside those that were there before and the workers
}

// perSecond is the rate of calls.
func (s *slice) perSecond() float64 { return float64(s.calls) / s.elapsed.Seconds() }

type worker struct {
	calls         atomic.Int64
	locked, whole histogram
	failures      int
	failure       error
	_             [64]byte // keeps the counters of two workers out of one cache line
}

// run returns when no call is under way any more. Calls that do not return are cancelled, and run fails with errHung.
func (l load) run(ctx context.Context) (slice, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	before := cmp.Or(l.idle, runtime.NumGoroutine())
	workers := make([]worker, l.goroutines)
	var measuring, over atomic.Bool
	var running sync.WaitGroup
	for i := range workers {
		running.Go(func() {
			for !over.Load() {
				workers[i].call(ctx, i, l.call, &measuring)
			}
		})
	}
	calls := func() int {
		sum := int64(0)
		for i := range workers {
			sum += workers[i].calls.Load()
		}
		return int(sum)
	}
	var s slice
	wait := func(least time.Duration, waves int) {
		from, start := calls(), time.Now()
		for took := time.Duration(0); took < least || took < 5*least && calls()-from < waves*l.goroutines; took = time.Since(start) {
			time.Sleep(min(20*time.Millisecond, max(time.Millisecond, least-took)))
			s.goroutines = max(s.goroutines, runtime.NumGoroutine()-before-l.goroutines)
		}
	}
	wait(l.warm, min(l.waves, 1))
	first, start := calls(), time.Now()
	measuring.Store(true)
	wait(l.measure, l.waves)
	s.calls, s.elapsed = calls()-first, time.Since(start)
	over.Store(true)
	if l.stopped != nil {
		measuring.Store(false)
		if err := l.stopped(); err != nil {
			return s, err
		}
	}
	if !returned(&running, patience) {
		err := fmt.Errorf("%w after %s", errHung, plural(calls(), "call"))
		cancel()
		if !returned(&running, grace) {
			err = fmt.Errorf("%w; calls do not heed that they are cancelled", err)
		}
		return s, err
	}
	s.all = calls()
	for i := range workers {
		w := &workers[i]
		s.locked.merge(&w.locked)
		s.whole.merge(&w.whole)
		s.failures += w.failures
		if s.failure == nil {
			s.failure = w.failure
		}
	}
	return s, nil
}

func (w *worker) call(ctx context.Context, i int, call func(context.Context, int) (time.Duration, error), measuring *atomic.Bool) {
	start := time.Now()
	locked, err := call(ctx, i)
	whole := time.Since(start)
	if err != nil {
		w.failures++
		if w.failure == nil {
			w.failure = err
		}
		return
	}
	if measuring.Load() {
		w.locked.add(locked)
		w.whole.add(whole)
	}
	w.calls.Add(1)
}
