package wire

import (
	"strconv"
	"strings"
	"time"
)

// A Guard is what a guard record says. Calls that only look at a node read the record by themselves, because a script would
// begin the quarantine.
type Guard struct {
	State GuardState
	Fresh bool          // Provision has begun with the node, and not ended
	Left  time.Duration // of the quarantine; where it has not begun, all of it
}

// A GuardState is the state of a node's memory, from the best to the worst.
type GuardState int

const (
	GuardUnknown GuardState = iota // or there is no guard
	GuardVoting
	GuardQuarantined // it may have forgotten leases
	GuardChanged     // its record is of another replication history: the quarantine begins when it is asked for a lock
	GuardMissing     // likewise; there is no record
)

// ParseGuard reads a guard record, as lua/guard.lua has it. history and now are the node's, maxTTL and lag the Locker's.
func ParseGuard(record, history string, now NodeTime, maxTTL, lag time.Duration) Guard {
	memory, rest, _ := strings.Cut(record, " ")
	of, since, declared := readMemory(memory)
	quarantine := max(maxTTL, LongestOf(record)) + lag
	left := quarantine - now.Since(nodeMillis(since))
	switch {
	case history == "":
		return Guard{} // what answers is no Redis
	case record == "":
		return Guard{State: GuardMissing, Left: quarantine}
	case of != history || since < 0:
		return Guard{State: GuardChanged, Left: quarantine}
	case declared || left <= 0:
		return Guard{State: GuardVoting}
	}
	return Guard{State: GuardQuarantined, Fresh: strings.Contains(rest, " "), Left: left}
}

// NoMemory stands for memory that nobody can name: there is no guard.
const NoMemory = "-"

// readMemory takes apart what a node remembers: its replication history, and since when it does (ms; -1 = nobody can tell), or
// that it was declared new.
func readMemory(memory string) (history string, since int64, declared bool) {
	history, began, known := strings.Cut(memory, ".")
	if !known {
		return history, -1, false
	}
	began, declared = strings.CutSuffix(began, "!")
	return history, number(began), declared
}

// LongestOf is the longest lease in use that a guard record knows of; 0 if it does not.
func LongestOf(record string) time.Duration {
	_, rest, _ := strings.Cut(record, " ")
	longest, _, _ := strings.Cut(rest, " ")
	longest, _, _ = strings.Cut(longest, ">") // a mark
	ms := number(longest)
	if ms <= 0 || ms > Slack.Milliseconds() {
		return 0
	}
	return time.Duration(ms) * time.Millisecond
}

// LongestSince is since when a node knows of the longest lease in use that its guard record names. note is what stands beside
// the record, see lua/guard.lua.
func LongestSince(record, note string) NodeTime {
	value, at, _ := strings.Cut(note, " ")
	longest := LongestOf(record)
	ofRecord := number(value) == longest.Milliseconds()
	if ofRecord && number(at) > 0 {
		return nodeMillis(number(at))
	}
	memory, _, _ := strings.Cut(record, " ")
	_, began, _ := readMemory(memory)
	return nodeMillis(began)
}

// number reads a number, -1 where there is none.
func number(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return -1
	}
	return n
}
