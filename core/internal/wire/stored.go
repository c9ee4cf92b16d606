package wire

import (
	"errors"
	"time"
)

// A Stored is the value that a node stores for a key, see lua/resource.lua.
type Stored struct {
	Expiry       NodeTime // of the lease; 0 if a release or a completion ended it
	Counter      uint64   // the last fencing token
	Owner        string   // the attempt that owns the key; see CooldownPrefix
	Holder       Holder
	RecordExpiry NodeTime // when the record expires
	Record       *Record  // nil if there is none
}

// Granted returns when the last token was granted, if the clocks of the nodes are right.
func (s *Stored) Granted() time.Time {
	return time.UnixMicro(int64(s.Counter))
}

// CooldownPrefix is the first byte of the owner of a key in cooldown. The name of the released attempt follows, or
// nothing after a revocation. No name of an attempt begins with this byte.
const CooldownPrefix = "~"

// The first byte of the value of a key is the number of its layout. It changes with the layout of any key that
// scripts read, so that versions with different layouts reject each other's keys.
const (
	layout       = "\x04"
	layoutQueued = "\x05" // if a call may wait for the key
)

// errLayout is returned for a value that this version cannot read.
var errLayout = errors.New("what the node stores for the key was not written by this version of lockkit")

// ParseStored parses the value that a node stores for a key.
func ParseStored(text string) (s Stored, err error) {
	in := unpacker{rest: text}
	mark := in.take(1)

	s.Expiry = nodeMillis(int64(in.number()))
	s.Counter = in.number()
	in.take(8) // the counter before the owner's grant
	if mark == layoutQueued {
		in.take(8) // when the last hold ended
	}
	s.Owner = in.text()

	if in.rest != "" {
		in.text()  // the attempt that has the next turn,
		in.take(8) // and when that ends
		s.Holder = ParseCarried(in.text())
	}

	if in.rest != "" {
		s.Record = &Record{Ballot: in.number()}
		s.RecordExpiry = nodeMillis(int64(in.number()))
		s.Record.Token = in.number()
		s.Record.Result = []byte(in.rest)
	}

	known := mark == layout || mark == layoutQueued
	if in.invalid || !known {
		return Stored{}, errLayout
	}
	return s, nil
}
