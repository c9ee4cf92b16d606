package cronlock

import (
	"context"
	"time"
)

// An entry is the knowledge about one tick, from its records and from this process's own runs.
type entry struct {
	tick        time.Time
	state       state     // tickFree, tickOrphaned or tickOver; a started tick is tickFree until evaluate has run
	start, end  *record   // the latest start, or the start that completed the tick; the end
	startLimit  int       // number of starts that the tick may have
	isUnbegun   bool      // start is on record, and this process has not begun its run
	unstartedAt time.Time // for a tick that was passed over: when it was found not started
}

// isStarted reports whether the tick was started: there is a record of a start or of the end.
func (e entry) isStarted() bool { return e.start != nil || e.end != nil }

// isFinal reports whether the tick was started and is over.
func (e entry) isFinal() bool { return e.isStarted() && e.state == tickOver }

// lastCompleted returns the last tick, up to and including this one, that is known to have completed without an error.
func (e entry) lastCompleted() time.Time {
	switch {
	case e.end != nil && e.end.Error == "":
		return e.tick
	case e.end != nil:
		return e.end.Previous
	case e.start != nil:
		return e.start.Previous
	}
	return time.Time{}
}

// nextAttempt returns the number of the next start.
func (e entry) nextAttempt() int {
	switch {
	case e.start == nil:
		return 1
	case e.isUnbegun:
		return e.start.Attempt
	default:
		return e.start.Attempt + 1
	}
}

// readEntries reads the first start and the end of each tick, all at the same time. The entries must still be
// evaluated.
func (j *Job) readEntries(ctx context.Context, wait time.Duration, ticks ...time.Time) ([]entry, error) {
	var keys []string
	for _, tick := range ticks {
		keys = append(keys, j.startKey(tick, 1), j.endKey(tick))
	}

	records, err := j.readRecords(ctx, wait, keys...)
	if err != nil {
		return nil, err
	}

	entries := make([]entry, len(ticks))
	for i, tick := range ticks {
		entries[i] = entry{tick: tick, startLimit: j.startLimit, start: records[2*i], end: records[2*i+1]}
	}
	return entries, nil
}

// evaluate reads the further starts of a tick, and sets the state of its entry. A tick with an end is over even if no
// node has its start, because nodes may have lost the start during the run. The start limit becomes the smallest of
// this job's and those of all replicas that have started the tick, because an at-most-once run must not be started
// twice.
func (j *Job) evaluate(ctx context.Context, wait time.Duration, e *entry) error {
	if e.end != nil {
		e.state = tickOver
	}
	if e.start == nil {
		return nil
	}

	beforeLatest, err := j.readFurtherStarts(ctx, wait, e)
	if err != nil {
		return err
	}

	// A start whose run this process has not begun counts as not made. But if the tick may start again, other replicas take
	// such a tick for one that did not complete, and so does this process.
	isUnbegun := j.isUnbegun(e.start, startID{e.tick, e.start.Attempt})
	switch {
	case e.end != nil:
	case isUnbegun && beforeLatest == nil && e.startLimit > 1:
		e.isUnbegun = true
		e.state = tickOrphaned
	case isUnbegun && beforeLatest == nil:
		e.start = nil
	case isUnbegun:
		e.start = beforeLatest
		e.state = tickOrphaned
	default:
		e.state = tickRunning.next(onDeath, e.startLimit-e.start.Attempt)
	}
	return nil
}

// readFurtherStarts reads the starts after e.start, until the last one. It sets e.start and e.startLimit, and returns
// the start before the last one, or nil if e.start is the only one.
func (j *Job) readFurtherStarts(ctx context.Context, wait time.Duration, e *entry) (beforeLatest *record, err error) {
	allowed := e.start.StartLimit // by the replicas that have started the tick
	for !e.hasLastStart(allowed) {
		found, err := j.readRecords(ctx, wait, j.startKey(e.tick, e.start.Attempt+1))
		if err != nil {
			return nil, err
		}
		if found[0] == nil {
			break
		}

		beforeLatest = e.start
		e.start = found[0]
		allowed = min(allowed, e.start.StartLimit)
	}
	e.startLimit = min(e.startLimit, allowed)
	return beforeLatest, nil
}

// hasLastStart reports whether e.start must be the last start: the start that the end names or, if there is no end, the
// last one that is allowed.
func (e entry) hasLastStart(allowed int) bool {
	if e.end != nil {
		return e.start.Attempt >= e.end.Attempt
	}
	return e.start.Attempt >= allowed
}

// isUnbegun reports whether r is the record of the start s, which this process asked for, and whose run it has not
// begun.
func (j *Job) isUnbegun(r *record, s startID) bool {
	return r.By == j.service.replicaID && j.memory.isPending(s)
}
