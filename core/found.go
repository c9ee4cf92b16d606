package core

import (
	"slices"
	"strings"
	"time"
)

// A FoundKind says what a key in Redis is for.
type FoundKind string

const (
	FoundLock      FoundKind = "lock"      // of a key of the user's: who holds it, its fencing counter, its record
	FoundWaiters   FoundKind = "waiters"   // those who wait for a key
	FoundTombstone FoundKind = "tombstone" // of an attempt that is over
	FoundGuard     FoundKind = "guard"     // record of the node: it has no expiry on purpose, see WithRestartGuard
	FoundProbe     FoundKind = "probe"     // what the start-up checks tried their rights on
	FoundForeign   FoundKind = "foreign"   // nothing that a Locker with this prefix on these nodes reads
)

// A Found is one key in Redis, as one node has it.
type Found struct {
	Node     int // index in the list given to New
	Kind     FoundKind
	Key      string // the user's, of a lock and of those who wait; empty otherwise
	RedisKey string
	TTL      time.Duration // until Redis drops the key, which is not when a lease ends; -1 = never
	Bytes    int64         // MEMORY USAGE; 0 where the node does not tell
	State    KeyOnNode     // of a lock: as Inspect has it, but that its record has no Result
	Waiters  int           // how many wait
	MaxTTL   time.Duration // of a guard record: the longest max TTL that the node was told of
}

// patterns are what SCAN is to match, for a glob on the user's key; "" stands for everything.
func (k keyspace) patterns(glob string) []string {
	prefix := globEscaper.Replace(strings.TrimSuffix(k.tags[0], "{0}"))
	switch {
	case glob == "":
		return []string{prefix + "*"}
	case len(k.tags) == 1:
		return []string{prefix + "{0}[rw]:" + glob}
	}
	// Not {*}, which would also match a key that contains "}r:".
	return []string{prefix + "{[0-9]}[rw]:" + glob, prefix + "{[0-9][0-9]}[rw]:" + glob}
}

var globEscaper = strings.NewReplacer(`*`, `\*`, `?`, `\?`, `[`, `\[`, `\`, `\\`)

// literal reports whether a glob matches one key only, and which.
func literal(glob string) (key string, ok bool) {
	var b strings.Builder
	for i := 0; i < len(glob); i++ {
		c := glob[i]
		switch c {
		case '*', '?', '[':
			return "", false
		case '\\':
			if i+1 < len(glob) {
				i++
				c = glob[i]
			}
		}
		b.WriteByte(c)
	}
	return b.String(), true
}

// kind says what a name under the prefix stands for.
func (k keyspace) kind(name string) (kind FoundKind, key string) {
	at := strings.IndexByte(name, '}') + 1 // the prefix has no braces
	bucket := slices.Index(k.tags, name[:at])
	if bucket < 0 {
		return FoundForeign, ""
	}
	switch rest := name[at:]; {
	case rest == "g":
		return FoundGuard, ""
	case rest == "p" && bucket == 0:
		return FoundProbe, ""
	case strings.HasPrefix(rest, "x:"):
		return FoundTombstone, ""
	case len(rest) < 3 || checkKey(rest[2:]) != nil || k.bucket(rest[2:]) != bucket:
		return FoundForeign, ""
	case rest[:2] == "r:":
		return FoundLock, rest[2:]
	case rest[:2] == "w:":
		return FoundWaiters, rest[2:]
	}
	return FoundForeign, ""
}
