package wire

import (
	"errors"
	"time"
)

// A Stored is what a node stores for a key, see lua/resource.lua.
type Stored struct {
	Expiry  NodeTime // of the lease; 0 = it was ended
	Counter uint64   // the last fencing token
	Owner   string
	Holder  Holder
	Kept    NodeTime // until when the record counts
	Record  *Record  // nil = none
}

// Granted is when the last token was given out, as far as the clocks of nodes are right.
func (s *Stored) Granted() time.Time { return time.UnixMicro(int64(s.Counter)) }

// KeptTaken begins the name of the owner that is left where a key stays taken and nobody holds it: after it comes the
// attempt that was released so, or nothing where it was revoked. No name of an attempt begins so.
const KeptTaken = "~"

// The first byte of what a node stores for a key: the number of its layout. It changes with the layout of any key that scripts
// read, so that versions which do not agree on it refuse each other's keys.
const (
	layout       = "\x04"
	layoutWaited = "\x05" // while somebody may wait
)

// errLayout is the error of what this version cannot read.
var errLayout = errors.New("what the node stores for the key was not written by this version of lockkit")

// ParseStored reads what a node stores for a key.
func ParseStored(text string) (s Stored, err error) {
	in := packed{rest: text}
	mark := in.take(1)
	s.Expiry = nodeMillis(int64(in.number()))
	s.Counter = in.number()
	in.take(8) // the counter before
	if mark == layoutWaited {
		in.take(8) // when the last hold ended
	}
	s.Owner = in.text()
	if in.rest != "" {
		in.text()  // who has the next turn,
		in.take(8) // and until when
		s.Holder = ParseCarried(in.text())
	}
	if in.rest != "" {
		s.Record = &Record{Ballot: in.number()}
		s.Kept = nodeMillis(int64(in.number()))
		s.Record.Token = in.number()
		s.Record.Result = []byte(in.rest)
	}
	known := mark == layout || mark == layoutWaited
	if in.bad || !known {
		return Stored{}, errLayout
	}
	return s, nil
}
