package wire

import (
	"strconv"
	"strings"
	"time"
)

// A Guard is the content of a guard record. Calls that only read from a node parse the record here, because a script
// would begin the quarantine.
type Guard struct {
	State     GuardState
	Fresh     bool          // Provision has claimed the node, and not declared it new yet
	Remaining time.Duration // the remaining quarantine; all of it if it has not begun
}

// A GuardState is the state of a node's memory, from the best to the worst.
type GuardState int

const (
	GuardUnknown GuardState = iota // unknown, or there is no guard
	GuardVoting
	GuardQuarantined // the node may have forgotten leases
	GuardChanged     // the record has another replication history: the next request for a lock begins the quarantine
	GuardMissing     // there is no record: the next request for a lock begins the quarantine
)

// ParseGuard parses a guard record, see lua/guard.lua. history and now belong to the node, maxTTL and lag to the
// Locker.
func ParseGuard(record, history string, now NodeTime, maxTTL, lag time.Duration) Guard {
	memory, rest, _ := strings.Cut(record, " ")
	of, since, declared := parseMemory(memory)
	quarantine := max(maxTTL, LongestOf(record)) + lag
	left := quarantine - now.Since(nodeMillis(since))

	switch {
	case history == "":
		return Guard{} // the server is not a Redis
	case record == "":
		return Guard{State: GuardMissing, Remaining: quarantine}
	case of != history || since < 0:
		return Guard{State: GuardChanged, Remaining: quarantine}
	case declared || left <= 0:
		return Guard{State: GuardVoting}
	}
	return Guard{State: GuardQuarantined, Fresh: strings.Contains(rest, " "), Remaining: left}
}

// NoMemory is the name of a node's memory if there is no guard.
const NoMemory = "-"

// parseMemory splits the name of a node's memory into the replication history, the time at which it began (ms; -1 if
// unknown), and whether the node was declared new.
func parseMemory(memory string) (history string, since int64, declared bool) {
	history, began, known := strings.Cut(memory, ".")
	if !known {
		return history, -1, false
	}

	began, declared = strings.CutSuffix(began, "!")
	return history, parseNumber(began), declared
}

// LongestOf returns the longest lease in use, by a guard record; 0 if the record has none.
func LongestOf(record string) time.Duration {
	_, rest, _ := strings.Cut(record, " ")
	longest, _, _ := strings.Cut(rest, " ")
	longest, _, _ = strings.Cut(longest, ">") // without an operator's mark

	ms := parseNumber(longest)
	if ms <= 0 || ms > ExpirySlack.Milliseconds() {
		return 0
	}
	return time.Duration(ms) * time.Millisecond
}

// LongestSince returns the time since which the guard record of a node has its longest lease in use. note is the value
// of the key beside the record, see lua/guard.lua.
func LongestSince(record, note string) NodeTime {
	value, at, _ := strings.Cut(note, " ")
	longest := LongestOf(record)
	ofRecord := parseNumber(value) == longest.Milliseconds()
	if ofRecord && parseNumber(at) > 0 {
		return nodeMillis(parseNumber(at))
	}

	// Without a note for this value, it is as old as the memory.
	memory, _, _ := strings.Cut(record, " ")
	_, began, _ := parseMemory(memory)
	return nodeMillis(began)
}

// parseNumber parses a decimal number. It returns -1 if text is none.
func parseNumber(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return -1
	}
	return n
}
