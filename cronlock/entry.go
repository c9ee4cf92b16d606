package cronlock

import (
	"context"
	"time"
)

// An entry is what is known of a tick.
type entry struct {
	tick        time.Time
	state       state     // free, orphan or over; a tick that was started and not judged yet is free
	start, end  *record   // the latest start, or the one that completed it; the end
	startLimit  int       // starts that the tick may have
	unstartedAt time.Time // of a tick that was passed over: when it was found not started
}

// started reports whether a record says that the tick was started.
func (e entry) isStarted() bool { return e.start != nil || e.end != nil }

// completed returns the last tick, up to this one, that is known to have completed without an error.
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

// attempt is the next start.
func (e entry) nextAttempt() int {
	if e.start == nil {
		return 1
	}
	return e.start.Attempt + 1
}

// entries reads the first start and the end of ticks, all at the same time. What is found has to be judged.
func (j *Job) readEntries(ctx context.Context, wait time.Duration, ticks ...time.Time) ([]entry, error) {
	var keys []string
	for _, tick := range ticks {
		keys = append(keys, j.startKey(tick, 1), j.endKey(tick))
	}
	records, err := j.readRecords(ctx, wait, keys...)
	if err != nil {
		return nil, err
	}
	all := make([]entry, len(ticks))
	for i, tick := range ticks {
		all[i] = entry{tick: tick, startLimit: j.startLimit, start: records[2*i], end: records[2*i+1]}
	}
	return all, nil
}

// judge reads the further starts of a tick, and says how far the tick has come. A tick with an end is over even if no node
// has its start any more: nodes may have lost that while the run went on. The smallest number of starts counts, this job's
// and those of all replicas that have started the tick, because a run that was to be started once has no second start to
// spare.
func (j *Job) evaluate(ctx context.Context, wait time.Duration, e *entry) error {
	if e.end != nil {
		e.state = tickOver
	}
	if e.start == nil {
		return nil
	}

	before := (*record)(nil)      // the start before the latest
	allowed := e.start.StartLimit // by the replicas that have started it
	for {
		if e.end == nil && e.start.Attempt >= allowed || e.end != nil && e.start.Attempt >= e.end.Attempt {
			break
		}
		again, err := j.readRecords(ctx, wait, j.startKey(e.tick, e.start.Attempt+1))
		if err != nil {
			return err
		}
		if again[0] == nil {
			break
		}
		before, e.start = e.start, again[0]
		allowed = min(allowed, e.start.StartLimit)
	}
	e.startLimit = min(e.startLimit, allowed)

	unbegun := e.start.By == j.service.replicaID && j.memory.isPending(start{e.tick, e.start.Attempt})
	switch {
	case e.end != nil:
	case unbegun && before == nil: // it is on record, and this process has not begun it
		e.start = nil
	case unbegun:
		e.start, e.state = before, tickOrphaned
	default:
		e.state = tickRunning.next(onDeath, e.startLimit-e.start.Attempt)
	}
	return nil
}
