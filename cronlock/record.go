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

// maxConcurrentReads is how many records of a job are read at the same time.
const maxConcurrentReads = 32

// readRecords returns the records of keys, in order, and nil for a key that has none. If a record is just being
// written, readRecords waits for it, at most for wait; 0 means no limit.
func (j *Job) readRecords(ctx context.Context, wait time.Duration, keys ...string) ([]*record, error) {
	records, errs := make([]*record, len(keys)), make([]error, len(keys))

	// A panic of an observer must reach the caller's goroutine.
	var panicked atomic.Pointer[any]

	slots := make(chan struct{}, maxConcurrentReads)
	var readers sync.WaitGroup
	for i, key := range keys {
		slots <- struct{}{}
		readers.Go(func() {
			defer func() {
				if p := recover(); p != nil {
					panicked.Store(&p)
				}
				<-slots
			}()
			records[i], errs[i] = j.readRecord(ctx, wait, key)
		})
	}
	readers.Wait()

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

// readRecord returns the record of one key, or nil.
func (j *Job) readRecord(ctx context.Context, wait time.Duration, key string) (*record, error) {
	found, err := j.findRecord(ctx, wait, key)
	if err != nil {
		return nil, err
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

// findRecord returns the record of a key, or nil. A confirmed record may be missing on so many of the nodes that answer
// now that no quorum shows it. If some nodes show a record but no quorum does, findRecord asks for the key: the nodes
// then decide whether the record counts.
func (j *Job) findRecord(ctx context.Context, wait time.Duration, key string) (*core.Record, error) {
	state, err := j.service.locker.Inspect(ctx, key)
	if err != nil || state.Record != nil {
		return state.Record, err
	}
	isOnSomeNode := slices.ContainsFunc(state.Nodes, func(n core.KeyOnNode) bool { return n.Record != nil })
	if !isOnSomeNode {
		return nil, nil
	}

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
