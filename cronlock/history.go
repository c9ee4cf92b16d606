package cronlock

import (
	"context"
	"fmt"
	"time"

	"github.com/lockkit/lockkit/core"
)

// A Past describes a tick that was due, from the records of the nodes.
type Past struct {
	Tick       time.Time
	Attempt    int       // number of the last start, or of the start that completed the tick; 0 if it was not started
	By         string    // process of that start: host name, process id and a random part
	Started    time.Time // time of that start, by the nodes' clocks
	Ended      time.Time // zero if no end is recorded: the run goes on, its process died, or it must be started again
	Error      string    // first 200 bytes of the function's error; empty if it returned nil
	Superseded bool      // the tick was not started, and a later tick was
}

// History returns the records of the latest n ticks that were due (1 to 100), the latest tick first. Records last for
// 100 ticks, but at least for the grace plus an hour and at most for 366 days, and for 366 days if fewer ticks follow.
// The nodes do not know since when a job exists: ticks from before its first start are shown as superseded. History
// reads two keys for most ticks, and one more for each start that AtLeastOnce allows a tick beside the first. It
// disturbs no run. If a start or an end is just being recorded, History waits for the record until ctx ends, or up to a
// TTL if the replica that records it dies. The errors are the same as for [core.Locker.Inspect].
func (j *Job) History(ctx context.Context, n int) (past []Past, err error) {
	if n < 1 || n > maxLookback {
		return nil, fmt.Errorf("cronlock: %w: a history of %d ticks, must be 1 to %d", core.ErrInvalid, n, maxLookback)
	}

	due, _ := j.latest(j.service.now())
	if due.IsZero() {
		return nil, nil
	}

	ticks := append([]time.Time{due}, ticksBefore(j.schedule, due, time.Time{})...)
	entries, err := j.readEntries(ctx, 0, ticks[:min(n, len(ticks))]...)
	if err != nil {
		return nil, &Error{Job: j.name, Err: err}
	}

	laterStarted := false
	for _, e := range entries {
		// Only the records count, so that all replicas tell the same history. This process may also know that the run of a
		// recorded start did not begin.
		if e.start != nil {
			_, err := j.readFurtherStarts(ctx, 0, &e)
			if err != nil {
				return nil, &Error{Job: j.name, Err: err}
			}
		}

		p := Past{Tick: e.tick, Superseded: !e.isStarted() && laterStarted}
		laterStarted = laterStarted || e.isStarted()
		if e.start != nil {
			p.Attempt = e.start.Attempt
			p.By = e.start.By
			p.Started = e.start.At
		}
		// The end names the start that completed the tick, even if nodes have lost the record of the start.
		if e.end != nil {
			p.Attempt = e.end.Attempt
			p.By = e.end.By
			p.Ended = e.end.At
			p.Error = e.end.Error
		}

		past = append(past, p)
	}
	return past, nil
}
