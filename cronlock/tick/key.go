package tick

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/lockkit/lockkit/core"
)

// The keys of a job, by core.Key:
//
//	cron, service, job, run                         held while a run goes on, unless overlap is allowed, or WithKey has another
//	cron, service, job, tick, instant               held while the tick's run goes on, then its record
//	cron, service, job, tick, trigger/id            the same for a run that was triggered
//	cron, service, job, tick, instant, attempt, 2   recorded before the second run of the tick starts
//	cron, service, job, gap                         recorded for as long as nobody may start the job
//	cron, service, job, gap, Monday/1               the same for those of its ticks that repeat as one
//	cron, service, job, reach                       looked at by who has to know whether the nodes can be reached
//	cron, service, board, page, n                   recorded what replicas know in common: see board
//	cron-leader, group                              held by the leader

func (j *Job) key(parts ...string) string {
	return core.Key(append([]string{"cron", j.service.name, j.name}, parts...)...)
}

func (j *Job) runKey() string { return cmp.Or(j.policy.key, j.key("run")) }

func (t *tick) key() []string { return []string{"tick", t.id} }

func (t *tick) attemptKey(n int) []string { return append(t.key(), "attempt", strconv.Itoa(n)) }

func (t *tick) gapKey() []string {
	if t.Slot == "" {
		return []string{"gap"}
	}
	return []string{"gap", t.Slot}
}

// stamp writes an instant.
func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// A record is what is kept of a tick, and of an attempt at it.
type record struct {
	Tick    string    `json:"tick"`
	By      string    `json:"by"`
	Outcome Outcome   `json:"outcome"`
	Attempt int       `json:"attempt,omitempty"`
	Began   time.Time `json:"began,omitzero"` // the function was called, by the replica's clock
	At      time.Time `json:"at"`             // written, by the same
}

func (r record) bytes() []byte {
	b, err := json.Marshal(r)
	if err != nil {
		panic(err) // strings and numbers
	}
	return b
}

func parseRecord(b []byte) (record, bool) {
	var r record
	return r, json.Unmarshal(b, &r) == nil && r.Outcome != ""
}

func (r record) String() string {
	return fmt.Sprintf("tick %s %s by %s", r.Tick, r.Outcome, r.By)
}
