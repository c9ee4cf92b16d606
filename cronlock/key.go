package cronlock

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"time"
)

// The keys of a job:
//
//	cron/<service>/<job>/run                       held while a run goes on, unless overlap is allowed
//	cron/<service>/<job>/tick/<instant>            held while the tick's run goes on, then its record
//	cron/<service>/<job>/tick/<instant>/attempt/2  recorded before the second run of the tick starts
//	cron/<service>/<job>/gap                       recorded for as long as nobody may start the job
//	cron/<service>/<job>/gap/Monday/1              the same for those of its ticks that repeat as one
//	cron-leader/<group>                            held by the leader
//
// Names are escaped, so that none forges another's.

func (c *Cron) key(j *job, rest string) string {
	return "cron/" + escape(c.service) + "/" + escape(j.name) + "/" + rest
}

func escape(name string) string {
	escaped := url.PathEscape(name)
	if len(escaped) > maxNameLen {
		sum := sha256.Sum256([]byte(name))
		return escaped[:maxNameLen/2] + "%%" + hex.EncodeToString(sum[:16]) // an escaped name has no %%
	}
	return escaped
}

// maxNameLen is how much of a key, which has 512 bytes, a name may take up.
const maxNameLen = 200

func tickKey(id string) string           { return "tick/" + id }
func attemptKey(id string, n int) string { return tickKey(id) + "/attempt/" + strconv.Itoa(n) }

func gapKey(slot string) string {
	if slot == "" {
		return "gap"
	}
	return "gap/" + slot
}

// stamp writes an instant.
func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// A record is what is kept of a tick, and of an attempt at it.
type record struct {
	Tick    string `json:"tick"`
	By      string `json:"by"`
	Outcome string `json:"outcome"`
	Attempt int    `json:"attempt,omitempty"`
}

// Outcomes of a tick.
const (
	outcomeStarted   = "started" // of an attempt, and of a gap
	outcomeRan       = "ran"
	outcomeFailed    = "failed"
	outcomeLost      = "lost"      // it has run, but its lease was lost on the way
	outcomeSkipped   = "skipped"   // an earlier run went on
	outcomeAbandoned = "abandoned" // every attempt ended without completion
)

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
