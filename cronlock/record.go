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
	"time"

	"github.com/lockkit/lockkit/core"
)

// key returns a key of the job. A job has no other keys than these: "run" is held while the job runs; "start", with a
// tick and a number, is the record made before that start of the tick; "end", with a tick, is the record made after a
// run.
func (j *Job) key(parts ...string) string {
	return core.Key(append([]string{"cron", j.service.name, j.name}, parts...)...)
}

func (j *Job) runKey() string { return j.key("run") }

func (j *Job) startKey(tick time.Time, n int) string {
	return j.key("start", stamp(tick), strconv.Itoa(n))
}

func (j *Job) endKey(tick time.Time) string { return j.key("end", stamp(tick)) }

// A record is the value that nodes store for a start or an end.
type record struct {
	By         string    `json:"by"`
	At         time.Time `json:"at"` // by the nodes' clocks
	Attempt    int       `json:"attempt"`
	StartLimit int       `json:"most"` // how many starts the tick may have, by the policy of the replica that started it
	Previous   time.Time `json:"previous,omitzero"`
	Error      string    `json:"error,omitempty"`
}

// retention returns how long the records of a tick are kept: until 100 more ticks were due, but at least for an hour
// more than the grace, within which the tick may start for the first time, and at most for a year. If fewer ticks
// follow, it returns a year.
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

// readRecords returns the records of keys, in order, and nil for a key that has none. If a record is just being
// written, readRecords waits for it, at most for wait; 0 means no limit.
func (j *Job) readRecords(ctx context.Context, wait time.Duration, keys ...string) ([]*record, error) {
	states, err := j.service.locker.InspectAll(ctx, keys...)
	if err != nil {
		return nil, err
	}
	found, err := j.settleRecords(ctx, wait, keys, states)
	if err != nil {
		return nil, err
	}

	records := make([]*record, len(keys))
	for i, f := range found {
		if f == nil {
			continue
		}
		records[i] = new(record)
		if err := json.Unmarshal(f.Result, records[i]); err != nil {
			return nil, fmt.Errorf("cronlock: %q has a record that this version cannot read: %w", keys[i], err)
		}
	}
	return records, nil
}

// maxConcurrentSettles is how many records of a job are settled at the same time.
const maxConcurrentSettles = 32

// settleRecords returns the records that the states of keys show. A confirmed record may be missing on so many of the
// nodes that answer now that no quorum shows it. If some nodes show a record but no quorum does, settleRecords settles
// it.
func (j *Job) settleRecords(
	ctx context.Context, wait time.Duration, keys []string, states []core.KeyState,
) ([]*core.Record, error) {
	records, errs := make([]*core.Record, len(keys)), make([]error, len(keys))
	slots := make(chan struct{}, maxConcurrentSettles)
	var settles sync.WaitGroup
	for i, state := range states {
		records[i] = state.Record
		isOnSomeNode := slices.ContainsFunc(state.Nodes, func(n core.KeyOnNode) bool { return n.Record != nil })
		if state.Record != nil || !isOnSomeNode {
			continue
		}

		slots <- struct{}{}
		settles.Go(func() {
			defer func() { <-slots }()
			records[i], errs[i] = j.settleRecord(ctx, wait, keys[i])
		})
	}
	settles.Wait()

	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return records, nil
}

// settleRecord asks for a key, so that the nodes decide whether a record of it counts. It returns the record, or nil.
func (j *Job) settleRecord(ctx context.Context, wait time.Duration, key string) (*core.Record, error) {
	lease, err := j.service.locker.Acquire(ctx, key, core.Name(j.name), core.MaxWait(wait))
	if err == nil {
		// The key was granted, so the record does not count.
		lease.Release(context.WithoutCancel(ctx))
		return nil, nil
	}
	if op, ok := errors.AsType[*core.OpError](err); ok && errors.Is(err, core.ErrDone) {
		return op.Record, nil
	}
	return nil, err
}

// newRecord returns the record of a start, or of an end with the error of the function.
func (c *claim) newRecord(fnErr error) record {
	j := c.job
	r := record{
		By:         j.service.replicaID,
		At:         j.service.now().UTC(),
		Attempt:    c.nextAttempt(),
		StartLimit: j.startLimit,
		Previous:   c.previous,
	}
	if fnErr != nil {
		// fmt.Sprint recovers a panic of the error's method.
		r.Error = strings.ToValidUTF8(fmt.Sprint(fnErr), "?")
		r.Error = cmp.Or(r.Error, "an error without text")
		r.Error = strings.ToValidUTF8(r.Error[:min(len(r.Error), 200)], "")
	}
	return r
}

// writeRecord records a start or an end on a quorum, unless there is a record already, and returns the record. It
// reports whether this call wrote it.
func (c *claim) writeRecord(ctx context.Context, key string, fnErr error) (mine bool, found record, err error) {
	j := c.job
	write := func(context.Context) ([]byte, error) {
		mine = true
		return json.Marshal(c.newRecord(fnErr))
	}
	result, err := j.service.locker.OnceResult(
		ctx, key, write,
		core.Name(j.name), core.Retention(j.retention(c.tick)), core.MaxWait(time.Second),
	)
	if err != nil {
		return mine, found, err
	}

	err = json.Unmarshal(result, &found)
	return mine, found, err
}
