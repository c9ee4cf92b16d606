package cronlock

import (
	"context"
	"slices"
	"time"
)

// maxLookback is how many ticks a job looks back, and for how many ticks records are kept.
const maxLookback = 100

// maxTicksPerRead is how many ticks are read at a time. The results are stored in the memory each time, so a poll that
// takes too long leaves less work to the next one.
const maxTicksPerRead = 50

// lastStarted returns the latest tick up to due that was started, or the zero entry if there is none among the last
// hundred, and the number of ticks after it that were not started. It reads only ticks that this process does not know,
// and stores the results in the memory.
//
// The caller must make sure that no tick before due can start for the first time any more: this process holds the job's
// lease, or no replica held it when the reading began.
func (j *Job) lastStarted(ctx context.Context, due time.Time) (last entry, unstarted int, err error) {
	began := time.Now()
	reader := tickReader{job: j, read: map[int64]entry{}, batchSize: 1}

	at := due
	for unstarted < maxLookback && !at.IsZero() {
		e, err := reader.entryOf(ctx, at, maxLookback-unstarted)
		if err != nil {
			return entry{}, 0, err
		}

		// Only the latest tick that was started needs its further starts. If this process has not begun its only start,
		// evaluate makes it a tick that was not started.
		if e.state == tickFree && e.isStarted() {
			if err := j.evaluate(ctx, maxKeyWait, &e); err != nil {
				return entry{}, 0, err
			}
		}
		if e.isStarted() {
			j.memory.add(e)
			return e, unstarted, nil
		}

		// A tick before due that was not started is superseded, unless this process may still begin it.
		isSuperseded := e.state == tickFree && at.Before(due) && !j.memory.isPending(startID{at, 1})
		if isSuperseded {
			j.memory.add(entry{tick: at, state: tickOver, unstartedAt: began})
		}
		unstarted++
		at, _ = latest(j.schedule, at.Add(-1))
	}
	return entry{}, unstarted, nil
}

// A tickReader returns the entries of ticks, from the latest one back. It reads those that the memory does not know, in
// batches that grow, because usually one of the latest ticks was started.
type tickReader struct {
	job       *Job
	read      map[int64]entry // by tick, in nanoseconds since 1970
	batchSize int
}

// entryOf returns the entry of a tick. If it must be read, up to limit unknown ticks before it are read with it.
func (r *tickReader) entryOf(ctx context.Context, tick time.Time, limit int) (entry, error) {
	e, found := r.read[tick.UnixNano()]
	if found {
		return e, nil
	}
	e, found = r.job.recall(tick)
	if found && e.state == tickOver {
		return e, nil
	}

	batch := r.job.unknownTicks(tick, min(r.batchSize, limit))
	entries, err := r.job.readEntries(ctx, maxKeyWait, batch...)
	if err != nil {
		return entry{}, err
	}
	for _, one := range entries {
		r.read[one.tick.UnixNano()] = one
	}
	r.batchSize = min(10*r.batchSize, maxTicksPerRead)
	return entries[0], nil
}

// supersededMargin is the time after a tick from which the earlier one counts as superseded for good. It exceeds the
// possible difference between two replicas' estimates of the nodes' clocks.
const supersededMargin = 200 * time.Millisecond

// recall returns the entry of a tick from the memory. An entry that says that the tick was not started counts only if
// the next tick was due when the tick was found not started. This is judged by the clock that is believed now, because
// the clock of that time may have been wrong.
func (j *Job) recall(tick time.Time) (e entry, known bool) {
	e, known = j.memory.lookup(tick)
	if !known || e.isStarted() {
		return e, known
	}

	next := j.schedule.Next(tick)
	return e, !next.IsZero() && j.timeAt(e.unstartedAt).Sub(next) >= supersededMargin
}

// timeAt converts a past time of this process to the nodes' clocks as they are known now.
func (j *Job) timeAt(past time.Time) time.Time { return j.service.now().Add(-time.Since(past)) }

// unknownTicks returns at most n ticks that must be read. The first is from; then follow, from the latest to the
// earliest, the earlier ticks that this process does not know, until a tick that was started.
func (j *Job) unknownTicks(from time.Time, n int) (ticks []time.Time) {
	for at := from; len(ticks) < n && !at.IsZero(); at, _ = latest(j.schedule, at.Add(-1)) {
		e, known := j.recall(at)
		switch {
		case known && e.state != tickOver:
			// It was started, and may be over by now.
			return append(ticks, at)
		case at.Equal(from), !known:
			ticks = append(ticks, at)
		case e.isStarted():
			// Earlier ticks do not matter: an orphan is started before any later tick.
			return ticks
		}
	}
	return ticks
}

// ticksBefore returns the ticks between after and tick, both excluded, from the latest to the earliest: at most
// maxLookback.
func ticksBefore(s Schedule, tick, after time.Time) (ticks []time.Time) {
	for len(ticks) < maxLookback {
		tick, _ = latest(s, tick.Add(-1))
		if tick.IsZero() || !tick.After(after) {
			break
		}
		ticks = append(ticks, tick)
	}
	return slices.Clip(ticks)
}
