package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"
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
}

// Kinds of events.
const (
	isReady   = "ready"
	runStarts = "starts"
	runEnds   = "ends"
	isRefused = "refused" // a tick, and not because another replica has it
	isOverlap = "overlap" // a tick is refused because a run of the job goes on
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

	mu     sync.Mutex
	events []event
	more   chan struct{} // closed by the next event
}

func newRecord(out io.Writer, brief bool) *record {
	return &record{out: out, brief: brief, start: time.Now(), more: make(chan struct{})}
}

func (r *record) add(e event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
	close(r.more)
	r.more = make(chan struct{})

	text := e.Text
	switch {
	case e.Kind == runEnds && text == "", e.Kind == isOverlap, r.brief && e.Job != "":
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

// wait returns the first event that matches, which may have come already.
func (r *record) wait(ctx context.Context, match func(event) bool) (event, error) {
	for seen := 0; ; {
		r.mu.Lock()
		events, more := r.events, r.more
		r.mu.Unlock()
		if i := slices.IndexFunc(events[seen:], match); i >= 0 {
			return events[seen+i], nil
		}
		seen = len(events)
		select {
		case <-more:
		case <-ctx.Done():
			return event{}, context.Cause(ctx)
		}
	}
}

// A run of a job, put together from its events.
type run struct {
	event            // its start
	end    time.Time // when it returned, or died
	killed bool
	failed string // its error
}

// runs returns the runs of a job in the order of their starts.
func (r *record) runs(job string) []run {
	r.mu.Lock()
	defer r.mu.Unlock()
	var runs []run
	for _, e := range r.events {
		if e.Kind == runStarts && e.Job == job {
			runs = append(runs, run{event: e})
			continue
		}
		for i := range runs {
			of := &runs[i]
			switch {
			case of.Replica != e.Replica || !of.end.IsZero():
			case e.Kind == isKilled:
				of.end, of.killed = e.At, true
			case e.Kind == runEnds && e.Job == job && e.Tick.Equal(of.Tick) && e.Attempt == of.Attempt:
				of.end, of.failed = e.At, e.Text
			}
		}
	}
	slices.SortStableFunc(runs, func(a, b run) int { return a.At.Compare(b.At) }) // of different processes
	return runs
}

// these returns the events of some kinds.
func (r *record) these(kinds ...string) []event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.events), func(e event) bool { return !slices.Contains(kinds, e.Kind) })
}

// of returns the events of a kind that concern a job.
func (r *record) of(j job, kind string) []event {
	return slices.DeleteFunc(r.these(kind), func(e event) bool { return e.Job != j.name })
}

// save writes all events to a file, and says where, as an error.
func (r *record) save() error {
	f, err := os.CreateTemp("", "cron-*.json")
	if err != nil {
		return err
	}
	out := json.NewEncoder(f)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		err = errors.Join(err, out.Encode(e))
	}
	return errors.Join(err, f.Close(), fmt.Errorf("all events are in %s", f.Name()))
}

func clockTime(t time.Time) string { return t.Local().Format(time.TimeOnly) }
