package main

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockkit/lockkit/testutil/history"
)

// A ledger follows the tasks, by what producers and workers report. Each worker has a pipe of its own, so that
// lines of two workers come in any order: counting waits until all are there, and goes by the times in them. The
// history decides whether two handlers ran for one order at a time, and whether fencing tokens grew.
type ledger struct {
	mu      sync.Mutex
	history history.History
	tasks   map[string]*task
	running map[execution]start
	cut     int            // runs that a kill ended
	taken   map[string]int // by worker: deliveries that it was handed
	faults  []error

	first, last time.Time     // of the runs: the earliest begin and the latest end
	worked      time.Duration // all runs together
}

// A task is what was reported of it.
type task struct {
	begun      []time.Time
	completed  int
	duplicates int       // deliveries suppressed because it was completed
	done       time.Time // of the earliest report that says it was completed
}

// never reports whether nothing says that the task was completed. A worker that is killed may not have said so,
// but then asynq delivers the task again, and that is a duplicate.
func (t *task) never() bool { return t.completed == 0 && t.duplicates == 0 }

// twice reports whether the task was completed more than once.
func (t *task) twice() bool { return t.completed > 1 }

// again counts the runs that began when the task was completed.
func (t *task) again() (n int) {
	for _, begun := range t.begun {
		if !t.done.IsZero() && begun.After(t.done) {
			n++
		}
	}
	return n
}

func (t *task) knownDone(at time.Time) {
	if t.done.IsZero() || at.Before(t.done) {
		t.done = at
	}
}

// An execution is a handler at work.
type execution struct{ worker, task, key string }

// A start is when it began, and the fencing token that it was given.
type start struct {
	at    time.Time
	token uint64
}

func newLedger() *ledger {
	return &ledger{tasks: map[string]*task{}, running: map[execution]start{}, taken: map[string]int{}}
}

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
	case "taken":
		l.taken[worker]++
	case "begin":
		t.begun = append(t.begun, at)
		l.running[r] = start{at, token}
		if l.first.IsZero() || at.Before(l.first) {
			l.first = at
		}
		l.history.Granted(key, worker+" "+id, token, at)
	case "end":
		l.worked += at.Sub(l.running[r].at)
		delete(l.running, r)
		if at.After(l.last) {
			l.last = at
		}
		l.history.Ended(key, worker+" "+id, token, at)
	case "completed":
		t.completed++
		t.knownDone(at)
	case "duplicate":
		t.duplicates++
		t.knownDone(at)
	}
}

// killed ends what a worker that is dead was at work on.
func (l *ledger) killed(worker string, at time.Time) (running int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for r, began := range l.running {
		if r.worker == worker {
			l.history.Ended(r.key, worker+" "+r.task, began.token, at)
			delete(l.running, r)
			running++
		}
	}
	l.cut += running
	return running
}

// A tally is the ledger in numbers.
type tally struct{ tasks, once, never, twice, again, duplicates, runs int }

func (l *ledger) tally() tally {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := tally{tasks: len(l.tasks)}
	for _, t := range l.tasks {
		switch {
		case t.never():
			n.never++
		case t.twice():
			n.twice++
		default:
			n.once++
		}
		n.again += t.again()
		n.duplicates += t.duplicates
		n.runs += len(t.begun)
	}
	return n
}

// pace is how long the work took from the first begin to the last end, and what it takes one after the other without a
// pause.
func (l *ledger) pace() (took, alone time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last.Sub(l.first), l.worked
}

// takenBy is how many deliveries a worker was handed.
func (l *ledger) takenBy(worker string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.taken[worker]
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
	n := l.tally()
	if n.never > 0 {
		errs = append(errs, fmt.Errorf("%d of %d tasks were never completed", n.never, n.tasks))
	}
	if n.twice > 0 {
		errs = append(errs, fmt.Errorf("%d of %d tasks were completed twice", n.twice, n.tasks))
	}
	if n.again > 0 {
		errs = append(errs, fmt.Errorf("%d runs of tasks that were completed", n.again))
	}
	return errors.Join(errs...)
}

// String is a table.
func (l *ledger) String() string {
	n := l.tally()
	overlaps, _ := l.overlaps()
	return fmt.Sprintf(`enqueued                          %5d
completed exactly once            %5d
never completed                   %5d
completed twice                   %5d
run again after completion        %5d
duplicate deliveries suppressed   %5d
runs                              %5d
  of these cut short by a kill    %5d
overlaps within an order          %5d
`, n.tasks, n.once, n.never, n.twice, n.again, n.duplicates, n.runs, l.cut, overlaps)
}
