package wire

import "time"

// A Record is a completion record as one node holds it.
type Record struct {
	Ballot uint64
	Rest   time.Duration
	Token  uint64
	Result []byte
}

// Aged is the record that a reply showed to a request of so long ago.
func (r Record) Aged(ago time.Duration) *Record {
	r.Rest = max(r.Rest-ago, time.Millisecond)
	return &r
}

// Beats reports whether r has the greater ballot, or is kept for longer, which somebody may have been promised.
func (r *Record) Beats(other *Record) bool {
	if other == nil {
		return true
	}
	if r.Ballot != other.Ballot {
		return r.Ballot > other.Ballot
	}
	return r.Rest > other.Rest
}
