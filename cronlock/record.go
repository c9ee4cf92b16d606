package cronlock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
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
	By       string    `json:"by"`
	At       time.Time `json:"at"` // by the nodes' clocks
	Attempt  int       `json:"attempt"`
	Most     int       `json:"most"` // starts that the tick may have, by the policy of who started it
	Previous time.Time `json:"previous,omitzero"`
	Error    string    `json:"error,omitempty"`
}

// mostTicks is how many ticks a job looks back, and for how many the records last.
const mostTicks = 100

// retention is how long the records of a tick last: for 100 ticks, at least an hour, at most a year, and always for longer
// than the tick may be started for the first time. If fewer ticks follow, they last for a year.
func (j *Job) retention(tick time.Time) time.Duration {
	last := tick
	for range mostTicks {
		next := j.schedule.Next(last)
		if !next.After(last) || last.Sub(tick) > year {
			return year
		}
		last = next
	}
	return min(max(last.Sub(tick), j.grace+time.Hour), year)
}

// read returns a record; nil means that there is none. A record that was agreed on may be on no quorum of those nodes that
// answer now. So where any node shows one and no quorum does, asking for the key settles whether it counts.
func (j *Job) read(ctx context.Context, key string) (*record, error) {
	locker := j.service.locker
	state, err := locker.Inspect(ctx, key)
	if err != nil {
		return nil, err
	}
	found := state.Record
	if found == nil && slices.ContainsFunc(state.Nodes, func(n core.KeyOnNode) bool { return n.Record != nil }) {
		lease, err := locker.TryAcquire(ctx, key, core.Name(j.name))
		lease.Release(ctx)
		op, ok := errors.AsType[*core.OpError](err)
		if !ok || !errors.Is(err, core.ErrDone) {
			return nil, err
		}
		found = op.Record
	}
	if found == nil {
		return nil, nil
	}
	r := new(record)
	if err := json.Unmarshal(found.Result, r); err != nil {
		return nil, fmt.Errorf("cronlock: %q has a record that this version cannot read: %w", key, err)
	}
	return r, nil
}

// An entry is what the nodes know of a tick.
type entry struct {
	tick       time.Time
	state      state   // free, orphan or over
	start, end *record // the latest start, or the one that completed it; the end
	most       int     // starts that the tick may have
}

// entry reads what the nodes know of a tick, and judges it by the smaller number of starts: this job's, and that of who
// started it first, because a run that was to be started once has no second start to spare.
func (j *Job) entry(ctx context.Context, tick time.Time) (e entry, err error) {
	e.tick, e.most = tick, j.starts
	if e.start, err = j.read(ctx, j.startKey(tick, 1)); err != nil || e.start == nil {
		return e, err
	}
	if e.end, err = j.read(ctx, j.endKey(tick)); err != nil {
		return e, err
	}
	last, fate := e.start.Most, died // by that policy it may have been started again elsewhere
	if e.end != nil {
		last, fate = e.end.Attempt, returned
	}
	e.most = min(j.starts, e.start.Most)
	for n := 2; n <= last; n++ {
		again, err := j.read(ctx, j.startKey(tick, n))
		if err != nil {
			return e, err
		}
		if again == nil {
			break
		}
		e.start = again
	}
	e.state = running.after(fate, e.most-e.start.Attempt)
	return e, nil
}

// completed returns the last tick, up to this one, that is known to have completed without an error.
func (e entry) completed() time.Time {
	switch {
	case e.start == nil:
		return time.Time{}
	case e.end != nil && e.end.Error == "":
		return e.tick
	}
	return e.start.Previous
}

// attempt is the next start.
func (e entry) attempt() int {
	if e.start == nil {
		return 1
	}
	return e.start.Attempt + 1
}

// back reads the entries of a tick and of those before it, at most mostTicks, one after the other: usually the second was
// started, and of many new jobs each reads far.
func (j *Job) back(ctx context.Context, tick time.Time) iter.Seq2[entry, error] {
	return func(yield func(entry, error) bool) {
		for n := 0; n < mostTicks && !tick.IsZero(); n++ {
			e, err := j.entry(ctx, tick)
			if !yield(e, err) || err != nil {
				return
			}
			tick, _ = latest(j.schedule, tick.Add(-1))
		}
	}
}
