package cronlock

import (
	"context"
	"slices"
	"time"
)

// mostTicks is how many ticks a job looks back, and for how many the records last.
const maxLookback = 100

// atATime is how many ticks are read at a time. What was found is noted after each time, so that a look that takes too long
// leaves less to the next one.
const maxTicksPerRead = maxConcurrentReads / 2

// back returns the latest tick up to due that was started, if there is one among the last hundred, and how many ticks after
// it were not. It reads what this process does not know, and notes what it has read. So nothing may be able to start a tick
// before due any more: this process has the job's lease, or nobody had it when the reading began.
func (j *Job) lastStarted(ctx context.Context, due time.Time) (started entry, waiting int, err error) {
	began := time.Now()
	read := map[int64]entry{}
	at := due
	for size := 1; waiting < maxLookback && !at.IsZero(); waiting++ {
		e, found := read[at.UnixNano()]
		if !found {
			e, found = j.recall(at)
			found = found && e.state == tickOver
		}

		if !found {
			some, err := j.readEntries(ctx, maxKeyWait, j.unknownTicks(at, min(size, maxLookback-waiting))...)
			if err != nil {
				return entry{}, 0, err
			}
			for _, one := range some {
				read[one.tick.UnixNano()] = one
			}
			e, size = some[0], min(10*size, maxTicksPerRead)
		}

		if e.state == tickFree && e.isStarted() {
			if err := j.evaluate(ctx, maxKeyWait, &e); err != nil {
				return entry{}, 0, err
			}
		}
		if e.isStarted() {
			j.memory.add(e)
			return e, waiting, nil
		}

		if e.state == tickFree && at.Before(due) && !j.memory.isPending(start{at, 1}) {
			j.memory.add(entry{tick: at, state: tickOver, unstartedAt: began})
		}
		at, _ = latest(j.schedule, at.Add(-1))
	}
	return entry{}, waiting, nil
}

// certainly is how long after a tick the one before it counts as superseded for good. It is more than what two replicas take
// for the nodes' clocks may differ by.
const supersededMargin = 200 * time.Millisecond

// knows returns what this process knows of a tick. That a tick was passed over it knows only if the next one was due when
// the tick was found not started; and by the clock that is believed now, because the clock of then may have been wrong.
func (j *Job) recall(tick time.Time) (e entry, known bool) {
	e, known = j.memory.lookup(tick)
	if !known || e.isStarted() {
		return e, known
	}
	next := j.schedule.Next(tick)
	return e, !next.IsZero() && j.timeAt(e.unstartedAt).Sub(next) >= supersededMargin
}

// then returns what time it was at an instant of the past, by the nodes' clocks as they are known now.
func (j *Job) timeAt(past time.Time) time.Time { return j.service.now().Add(-time.Since(past)) }

// unknown returns ticks that have to be read, from one on that has to be: it, and those before it that this process knows
// nothing of, until one that was started. They are at most n.
func (j *Job) unknownTicks(from time.Time, n int) (ticks []time.Time) {
	for at := from; len(ticks) < n && !at.IsZero(); at, _ = latest(j.schedule, at.Add(-1)) {
		e, known := j.recall(at)
		switch {
		case known && e.state != tickOver: // it may be over by now
			return append(ticks, at)
		case at.Equal(from), !known:
			ticks = append(ticks, at)
		case e.isStarted():
			return ticks
		}
	}
	return ticks
}

// ticksBefore returns the ticks of a schedule that are later than after and before the given one, the latest first, and at
// most as many as are looked back for.
func ticksBefore(s Schedule, tick, after time.Time) (all []time.Time) {
	for len(all) < maxLookback {
		tick, _ = latest(s, tick.Add(-1))
		if tick.IsZero() || !tick.After(after) {
			break
		}
		all = append(all, tick)
	}
	return slices.Clip(all)
}
