package cronlock

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
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

// says is what this process records of a start, or of an end with the error of the function.
func (c *claim) newRecord(failed error) record {
	j := c.job
	r := record{By: j.service.replicaID, At: j.service.now().UTC(), Attempt: c.nextAttempt(), StartLimit: j.startLimit, Previous: c.previous}
	if failed != nil {
		r.Error = strings.ToValidUTF8(fmt.Sprint(failed), "?") // which contains a panic of its method
		r.Error = cmp.Or(r.Error, "an error without text")
		r.Error = strings.ToValidUTF8(r.Error[:min(len(r.Error), 200)], "")
	}
	return r
}

// write has a quorum record a start or an end, and reports whether this call did. If not, it returns the record that another
// has written.
func (c *claim) writeRecord(ctx context.Context, key string, failed error) (mine bool, found record, err error) {
	j := c.job
	result, err := j.service.locker.OnceResult(ctx, key, func(context.Context) ([]byte, error) {
		mine = true
		return json.Marshal(c.newRecord(failed))
	}, core.Name(j.name), core.Retention(j.retention(c.tick)), core.MaxWait(time.Second))
	if err == nil {
		err = json.Unmarshal(result, &found)
	}
	return mine, found, err
}
