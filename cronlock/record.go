package cronlock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockkit/lockkit/core"
)

// The keys of a job: "run" is held while it runs; "start", with a tick and a number, is recorded before that start of the
// tick; "end", with a tick, is recorded after it. Nothing else is stored.
func (j *Job) key(parts ...string) string {
	return core.Key(append([]string{"cron", j.service.name, j.name}, parts...)...)
}

func (j *Job) runKey() string { return j.key("run") }
func (j *Job) startKey(tick time.Time, n int) string {
	return j.key("start", stamp(tick), strconv.Itoa(n))
}
func (j *Job) endKey(tick time.Time) string { return j.key("end", stamp(tick)) }

// A record is what the nodes keep of a start, or of an end.
type record struct {
	By         string    `json:"by"`
	At         time.Time `json:"at"` // by the nodes' clocks
	Attempt    int       `json:"attempt"`
	StartLimit int       `json:"most"` // starts that the tick may have, by the policy of the replica that started it
	Previous   time.Time `json:"previous,omitzero"`
	Error      string    `json:"error,omitempty"`
}

// mostTicks is how many ticks a job looks back, and for how many the records last.
const maxLookback = 100

// retention is how long the records of a tick last: for 100 ticks, at least an hour, at most a year, and always for longer
// than the tick may be started for the first time. If fewer ticks follow, they last for a year.
func (j *Job) retention(tick time.Time) time.Duration {
	last := tick
	for range maxLookback {
		next := j.schedule.Next(last)
		if !next.After(last) || last.Sub(tick) > year {
			return year
		}
		last = next
	}
	return min(max(last.Sub(tick), j.grace+time.Hour), year)
}

// mostReads is how many records of a job are read at the same time.
const maxConcurrentReads = 32

// read returns the records of keys, in their order, nil where there is none. If a record is just being written, read waits
// for that, for as long as wait says; 0 is without a bound.
func (j *Job) readRecords(ctx context.Context, wait time.Duration, keys ...string) ([]*record, error) {
	records, errs := make([]*record, len(keys)), make([]error, len(keys))
	var panicked atomic.Pointer[any] // of an observer, for the goroutine that reads
	room := make(chan struct{}, maxConcurrentReads)
	var reading sync.WaitGroup
	for i, key := range keys {
		room <- struct{}{}
		reading.Go(func() {
			defer func() {
				if p := recover(); p != nil {
					panicked.Store(&p)
				}
				<-room
			}()
			records[i], errs[i] = j.readRecord(ctx, wait, key)
		})
	}
	reading.Wait()

	if p := panicked.Load(); p != nil {
		panic(*p)
	}
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return records, nil
}

func (j *Job) readRecord(ctx context.Context, wait time.Duration, key string) (*record, error) {
	found, err := j.findRecord(ctx, wait, key)
	if err != nil || found == nil {
		return nil, err
	}
	r := new(record)
	if err := json.Unmarshal(found.Result, r); err != nil {
		return nil, fmt.Errorf("cronlock: %q has a record that this version cannot read: %w", key, err)
	}
	return r, nil
}

// decided returns the record of a key. A record that was agreed on may be on no quorum of those nodes that answer now. So
// where any node shows one and no quorum does, asking for the key settles whether it counts.
func (j *Job) findRecord(ctx context.Context, wait time.Duration, key string) (*core.Record, error) {
	state, err := j.service.locker.Inspect(ctx, key)
	shown := slices.ContainsFunc(state.Nodes, func(n core.KeyOnNode) bool { return n.Record != nil })
	if err != nil || state.Record != nil || !shown {
		return state.Record, err
	}
	lease, err := j.service.locker.Acquire(ctx, key, core.Name(j.name), core.MaxWait(wait))
	if err == nil {
		lease.Release(context.WithoutCancel(ctx))
		return nil, nil
	}
	if op, ok := errors.AsType[*core.OpError](err); ok && errors.Is(err, core.ErrDone) {
		return op.Record, nil
	}
	return nil, err
}

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
