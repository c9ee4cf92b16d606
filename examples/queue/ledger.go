package main

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockkit/lockkit/testutil"
)

// A ledger follows the tasks, by what producers and workers report. The history decides whether two handlers
// ran for one order at a time, and whether fencing tokens grew.
type ledger struct {
	mu         sync.Mutex
	history    testutil.History
	tasks      map[string]*task
	running    map[execution]uint64 // token
	duplicates int
	cut        int // runs that a kill ended
	again      int // runs of tasks that were completed before
	faults     []error
}

type task struct{ done, runs int }

// An execution is a handler at work.
type execution struct{ worker, task, key string }

func newLedger() *ledger { return &ledger{tasks: map[string]*task{}, running: map[execution]uint64{}} }

func (l *ledger) task(id string) *task {
	t := l.tasks[id]
	if t == nil {
		t = &task{}
		l.tasks[id] = t
	}
	return t
}

func (l *ledger) enqueued(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.task(id)
}

// report takes one line of a worker.
func (l *ledger) report(worker, line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var what, id, key string
	var token uint64
	var nanos int64
	if n, err := fmt.Sscan(line, &what, &id, &token, &nanos, &key); n < 4 {
		l.faults = append(l.faults, fmt.Errorf("%s reported %q: %w", worker, line, err))
		return
	}
	at, t, r := time.Unix(0, nanos), l.task(id), execution{worker, id, key}
	switch what {
	case "begin":
		if t.done > 0 {
			l.again++
		}
		t.runs++
		l.running[r] = token
		l.history.Granted(key, worker+" "+id, token, at)
	case "end":
		delete(l.running, r)
		l.history.Ended(key, worker+" "+id, token, at)
	case "completed":
		t.done++
	case "duplicate": // completed, by a worker that was killed before it could say so, or a real one
		l.duplicates++
		t.done = max(t.done, 1)
	}
}

// killed ends what a worker that is dead was at work on.
func (l *ledger) killed(worker string, at time.Time) (running int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for r, token := range l.running {
		if r.worker == worker {
			l.history.Ended(r.key, worker+" "+r.task, token, at)
			delete(l.running, r)
			running++
		}
	}
	l.cut += running
	return running
}

func (l *ledger) completed() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range l.tasks {
		if t.done == 1 {
			n++
		}
	}
	return n
}

// overlaps is what the history has against it.
func (l *ledger) overlaps() (n int, err error) {
	if err = l.history.Check(); err == nil {
		return 0, nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return len(joined.Unwrap()), err
	}
	return 1, err
}

// check is the verdict.
func (l *ledger) check() error {
	_, err := l.overlaps()
	errs := append(l.faults, err)
	if done := l.completed(); done != len(l.tasks) {
		errs = append(errs, fmt.Errorf("%d of %d tasks completed exactly once", done, len(l.tasks)))
	}
	if l.again > 0 {
		errs = append(errs, fmt.Errorf("%d runs of tasks that were completed", l.again))
	}
	return errors.Join(errs...)
}

// String is a table.
func (l *ledger) String() string {
	runs := 0
	for _, t := range l.tasks {
		runs += t.runs
	}
	overlaps, _ := l.overlaps()
	return fmt.Sprintf(`enqueued                          %5d
completed exactly once            %5d
run again after completion        %5d
duplicate deliveries suppressed   %5d
runs                              %5d
  of these cut short by a kill    %5d
overlaps within an order          %5d
`, len(l.tasks), l.completed(), l.again, l.duplicates, runs, l.cut, overlaps)
}
