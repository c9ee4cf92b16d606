package main

import (
	"fmt"
	"time"
)

// Counters are what must come out right, and what is interesting otherwise.
type Counters struct {
	Ticks         int `json:"ticks"` // seconds since the first run of the job
	Runs          int `json:"runs"`  // of the job: at most one for each tick
	Tasks         int `json:"tasks"` // enqueued
	Completed     int `json:"completed"`
	Again         int `json:"again"`        // completions of tasks that were completed already, though no node had forgotten it
	Forgotten     int `json:"forgotten"`    // likewise, but a node had lost its memory in between
	Duplicates    int `json:"duplicates"`   // deliveries of tasks that were completed, which were not run again
	Updates       int `json:"updates"`      // under a lock
	LostWith      int `json:"lost_with"`    // of these
	LostWithout   int `json:"lost_without"` // of those without a lock
	StaleRefused  int `json:"stale_refused"`
	StaleAccepted int `json:"stale_accepted"`
	Grants        int `json:"grants"`
	Losses        int `json:"losses"`
}

// A tally counts, and notices ticks and tasks that ran twice.
type tally struct {
	Counters
	forgotten func(since time.Time) bool // whether a node has lost its memory

	first, last time.Time // ticks that ran
	ticks       recent[string, string]
	tasks       recent[string, *task]
}

// A task is what is known of one.
type task struct {
	began                time.Time // at the latest, of its first run
	completed, duplicate bool
}

// see returns what is wrong: "" for nothing.
func (t *tally) see(e Event) (wrong string) {
	switch e.Kind {
	case isGrant:
		t.Grants++
	case isLost:
		t.Losses++
	case isTick:
		return t.tick(e)
	case isTask:
		return t.task(e)
	case isWrite:
		switch e.Text {
		case "refused":
			t.StaleRefused++
		case "stale":
			t.StaleAccepted++
		}
	}
	return ""
}

// tick notices one that runs for the second time: the job is AtMostOnce.
func (t *tally) tick(e Event) (wrong string) {
	t.Runs++
	at, err := time.Parse(time.RFC3339, e.Text)
	if err != nil {
		return fmt.Sprintf("replica %s ran the tick %q", e.Replica, e.Text)
	}
	if t.first.IsZero() || at.Before(t.first) {
		t.first = at
	}
	if at.After(t.last) {
		t.last = at
	}
	t.Ticks = int(t.last.Sub(t.first)/time.Second) + 1
	if by, ok := t.ticks.get(e.Text); ok {
		return fmt.Sprintf("tick %s ran on %s and on %s", e.Text, by, e.Replica)
	}
	t.ticks.put(e.Text, e.Replica)
	return ""
}

// task notices one that is completed for the second time, unless a node has lost its memory in between: a bare quorum may
// have had the record of the first completion, and the node that forgot it made a quorum with those that never had it.
// Replicas tell of it in any order.
func (t *tally) task(e Event) (wrong string) {
	x, ok := t.tasks.get(e.Key)
	began := instant(e.At - e.Ms)
	if !ok {
		x = &task{began: began}
		t.tasks.put(e.Key, x)
		t.Completed++
	}
	if began.Before(x.began) {
		x.began = began
	}
	switch {
	case e.Text == "duplicate":
		x.duplicate = true
		t.Duplicates++
	case !x.completed:
		x.completed = true
	case t.forgotten(x.began):
		t.Forgotten++
	default:
		t.Again++
		return fmt.Sprintf("task %s was completed twice", e.Key)
	}
	return ""
}

// A recent map forgets what is oldest.
type recent[K comparable, V any] struct {
	values map[K]V
	order  []K
}

const recentSize = 5000

func (r *recent[K, V]) get(k K) (v V, ok bool) {
	v, ok = r.values[k]
	return v, ok
}

func (r *recent[K, V]) put(k K, v V) {
	if r.values == nil {
		r.values = map[K]V{}
	}
	if len(r.order) == recentSize {
		delete(r.values, r.order[0])
		r.order = append(r.order[:0], r.order[1:]...)
	}
	r.values[k] = v
	r.order = append(r.order, k)
}
