package wire

import (
	"strconv"
	"time"
)

// What only looks at a node reads its guard record by itself, since a script would begin the quarantine.

// A Guard is what a guard record says.
type Guard struct {
	State GuardState
	Fresh bool          // Provision has begun with the node, and not ended
	Left  time.Duration // of the quarantine; where it has not begun, all of it
}

// A GuardState is from the best on.
type GuardState int

const (
	GuardUnknown GuardState = iota // or there is no guard
	GuardVoting
	GuardQuarantined // it may have forgotten leases
	GuardChanged     // its record is of another replication history: the quarantine begins when it is asked for a lock
	GuardMissing     // likewise; there is no record
)

// GuardQuery is the command that reads a guard record.
func (k *Keyspace) GuardQuery(bucket int) []any {
	return []any{"hmget", k.guards[bucket], "h", "s", "m", "n", "v"}
}

// ParseGuard reads a guard record, as head.lua does. history and now are the node's, maxTTL and lag the Locker's.
func ParseGuard(record []any, history string, now NodeTime, maxTTL, lag time.Duration) Guard {
	if len(record) != 5 || history == "" {
		return Guard{} // what answers is no Redis
	}
	var text [5]string
	for i, v := range record {
		text[i], _ = v.(string)
	}
	quarantine := max(maxTTL, LongestOf(record)) + lag
	since := number(text[1])
	switch {
	case text[0] == "":
		return Guard{State: GuardMissing, Left: quarantine}
	case text[0] != history || since < 0:
		return Guard{State: GuardChanged, Left: quarantine}
	}
	left := quarantine - now.Since(NodeMillis(since))
	if text[4] != "" || left <= 0 {
		return Guard{State: GuardVoting}
	}
	return Guard{State: GuardQuarantined, Fresh: text[3] != "", Left: left}
}

// LongestOf is the longest lease in use that a guard record knows of; 0 if it does not.
func LongestOf(record []any) time.Duration {
	if len(record) != 5 {
		return 0
	}
	text, _ := record[2].(string)
	if ms := number(text); 0 < ms && ms <= Slack.Milliseconds() {
		return time.Duration(ms) * time.Millisecond
	}
	return 0
}

// number reads a number, -1 where there is none.
func number(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return -1
	}
	return n
}
