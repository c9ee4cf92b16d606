package core

import (
	"context"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// What only looks at a node reads its guard record by itself, since a script would begin the quarantine.

// guardFacts are what a guard record says.
type guardFacts struct {
	state guardState
	fresh bool          // Provision has begun with the node, and not ended
	left  time.Duration // of the quarantine; where it has not begun, all of it
}

// A guardState is from the best on.
type guardState int

const (
	guardUnknown guardState = iota // or there is no guard
	guardVoting
	guardQuarantined // it may have forgotten leases
	guardChanged     // its record is of another replication history: the quarantine begins when it is asked for a lock
	guardMissing     // likewise; there is no record
)

// askGuard asks for a guard record.
func askGuard(ctx context.Context, guard string) *redis.SliceCmd {
	return redis.NewSliceCmd(ctx, "hmget", guard, "h", "s", "m", "n", "v")
}

// readGuard reads a guard record, as head.lua does. history and now are the node's.
func (p *policy) readGuard(record []any, history string, now nodeTime) guardFacts {
	if len(record) != 5 || history == "" {
		return guardFacts{} // what answers is no Redis
	}
	var text [5]string
	for i, v := range record {
		text[i], _ = v.(string)
	}
	quarantine := max(p.maxTTL, longestOf(record)) + p.lag
	since := number(text[1])
	switch {
	case text[0] == "":
		return guardFacts{state: guardMissing, left: quarantine}
	case text[0] != history || since < 0:
		return guardFacts{state: guardChanged, left: quarantine}
	}
	left := quarantine - now.since(nodeMillis(since))
	if text[4] != "" || left <= 0 {
		return guardFacts{state: guardVoting}
	}
	return guardFacts{state: guardQuarantined, fresh: text[3] != "", left: left}
}

// longestOf is the longest lease in use that a guard record knows of; 0 if it does not.
func longestOf(record []any) time.Duration {
	if len(record) != 5 {
		return 0
	}
	text, _ := record[2].(string)
	if ms := number(text); 0 < ms && ms <= slack.Milliseconds() {
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
