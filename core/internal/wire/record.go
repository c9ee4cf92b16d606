package wire

import "time"

// A Record is a completion record on one node.
type Record struct {
	Ballot    uint64
	Retention time.Duration // how long the node still keeps it
	Token     uint64        // of the lease that completed the key
	Result    []byte
}

// Aged returns a copy of r whose retention is shorter by ago, the time since its request was sent, but at least 1 ms.
func (r Record) Aged(ago time.Duration) *Record {
	r.Retention = max(r.Retention-ago, time.Millisecond)
	return &r
}

// Beats reports whether r takes precedence over other: it has the greater ballot, or the same and is kept for longer,
// because a caller may have been promised that.
func (r *Record) Beats(other *Record) bool {
	if other == nil {
		return true
	}
	if r.Ballot != other.Ballot {
		return r.Ballot > other.Ballot
	}
	return r.Retention > other.Retention
}
