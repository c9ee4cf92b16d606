package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/lockkit/lockkit/examples/internal/stage"
)

// An event is a line that a replica writes, or what the demo does to it.
type event struct {
	Replica, Kind string
	At            time.Time
	Job           string
	Tick          time.Time
	Attempt       int
	Token         uint64
	Text          string
	Overdue       time.Duration // of a run that ends after its lease: by so much
}

// Kinds of events.
const (
	isReady   = "ready"
	runStarts = "starts"
	runEnds   = "ends"
	isAsking  = "asks" // for the lease of a job, and may have it from here
	isFree    = "free" // it does not have it any more; with a text if the nodes may not know
	isElected = "leads"
	isDeposed = "follows"
	isKilled  = "killed"
	leaves    = "leaves"
	isStopped = "stopped" // SIGSTOP
	goesOn    = "goes on" // SIGCONT
	isEmptied = "emptied" // a node
)

// A record keeps the events, and prints them as they come.
type record struct {
	out   io.Writer
	brief bool // what happens to jobs is not printed
	start time.Time
	kept  stage.Events[event]

	printing sync.Mutex // events are printed in the order in which they are kept
}

func newRecord(out io.Writer, brief bool) *record {
	return &record{out: out, brief: brief, start: time.Now()}
}

func (r *record) add(e event) {
	r.printing.Lock()
	defer r.printing.Unlock()
	r.kept.Add(e)
	text := e.Text
	switch {
	case e.Kind == runEnds && text == "", e.Kind == isAsking, e.Kind == isFree, r.brief && e.Job != "":
		return
	case e.Kind == runStarts && e.Attempt > 0:
		text = fmt.Sprintf("attempt %d, token %d", e.Attempt, e.Token)
	}
	tick := ""
	if !e.Tick.IsZero() {
		tick = clockTime(e.Tick)
	}
	fmt.Fprintf(r.out, "%6.2fs  %-2s %-8s %-7s%-9s %s\n", e.At.Sub(r.start).Seconds(), e.Replica, e.Kind, e.Job, tick, text)
}

// A run of a job, put together from its events.
type run struct {
	event            // its start
	end    time.Time // when it returned, or died; zero if it goes on
	alone  time.Time // until when no other may run: its end, or that of its context if that was before
	killed bool
	failed string // its error
}

// completed reports whether the function returned without an error.
func (r run) completed() bool { return !r.end.IsZero() && !r.killed && r.failed == "" }

// runs returns the runs of a job in the order of their starts. A process that is stopped for as long as the TTL, and
// killed before it can say so, has lost its lease meanwhile. One that is killed while it is stopped does nothing from the
// stop on, and cannot say how long its lease was valid.
func runs(events []event, job string, ttl time.Duration) []run {
	var all []run
	stopped := map[string]time.Time{} // since when it is
	long := map[string]time.Time{}    // the last time that it was for long, or for good
	for _, e := range events {
		switch e.Kind {
		case isStopped:
			stopped[e.Replica] = e.At
		case goesOn, isKilled:
			if since, ok := stopped[e.Replica]; ok && (e.Kind == isKilled || e.At.Sub(since) >= ttl) {
				long[e.Replica] = since
			}
			delete(stopped, e.Replica)
		case runStarts:
			if e.Job == job {
				all = append(all, run{event: e})
			}
		}
		for i := range all {
			all[i].hear(e, long[e.Replica])
		}
	}
	slices.SortStableFunc(all, func(a, b run) int { return a.At.Compare(b.At) }) // of different processes
	return all
}

// hear ends the run if that is what the event says. stopped is when its process was stopped for long or for good, if it was.
func (r *run) hear(e event, stopped time.Time) {
	switch {
	case r.Replica != e.Replica || !r.end.IsZero():
	case e.Kind == isKilled:
		r.end, r.alone, r.killed = e.At, e.At, true
		if stopped.After(r.At) {
			r.alone = stopped
		}
	case e.Kind == runEnds && e.Job == r.Job && e.Tick.Equal(r.Tick) && e.Attempt == r.Attempt:
		r.end, r.alone, r.failed = e.At, e.At.Add(-e.Overdue), e.Text
	}
}

// these returns the events of some kinds.
func (r *record) these(kinds ...string) []event {
	return slices.DeleteFunc(r.kept.All(), func(e event) bool { return !slices.Contains(kinds, e.Kind) })
}

// save writes all events to a file, and says where, as an error.
func (r *record) save() error {
	f, err := os.CreateTemp("", "cron-*.json")
	if err != nil {
		return err
	}
	out := json.NewEncoder(f)
	for _, e := range r.kept.All() {
		err = errors.Join(err, out.Encode(e))
	}
	return errors.Join(err, f.Close(), fmt.Errorf("all events are in %s", f.Name()))
}

func clockTime(t time.Time) string { return t.Local().Format(time.TimeOnly) }
