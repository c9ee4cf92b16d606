package testutil

import (
	"encoding/binary"
	"fmt"
	"math"
)

// A Resource is what a node stores for a key, taken apart; see resource.lua in
// core for what it means. Times are of the server, in ms.
type Resource struct {
	Expiry    int64  // of the lease; 0 = none, or it was ended
	Counter   int64  // the last fencing token
	Before    int64  // what Counter was before the owner was granted; -1 = it was not
	TurnUntil int64  // Next may have the key next until then
	Owner     string // the attempt that has the lease, or had it last
	Next      string
	Carried   string // by the owner's holder
	Waited    bool   // somebody may wait for the key
	Ended     int64  // where somebody may wait: when the last hold ended, if it was released
	Record    *ResourceRecord
}

// A ResourceRecord is a completion record as one node has it.
type ResourceRecord struct {
	Ballot, Kept, Origin int64
	Result               string
}

// Marks of the layout.
const resourceLayout, waitedLayout = 4, 5

// ParseResource takes a stored value apart. An empty one is a free key that was
// never used.
func ParseResource(value string) (Resource, error) {
	r := Resource{Before: -1}
	if value == "" {
		return r, nil
	}
	in := []byte(value)
	r.Waited = in[0] == waitedLayout
	bad := in[0] != resourceLayout && !r.Waited
	number := func() int64 {
		if len(in) < 8 {
			bad = true
			return 0
		}
		n := math.Float64frombits(binary.LittleEndian.Uint64(in))
		in = in[8:]
		return int64(n)
	}
	text := func() string {
		if len(in) == 0 || len(in) <= int(in[0]) {
			bad = true
			return ""
		}
		end := 1 + int(in[0])
		s := string(in[1:end])
		in = in[end:]
		return s
	}
	in = in[1:]
	r.Expiry, r.Counter, r.Before = number(), number(), number()
	if r.Waited {
		r.Ended = number()
	}
	r.Owner = text()
	if len(in) > 0 {
		r.Next, r.TurnUntil, r.Carried = text(), number(), text()
	}
	if len(in) > 0 {
		r.Record = &ResourceRecord{Ballot: number(), Kept: number(), Origin: number()}
		r.Record.Result = string(in)
	}
	if bad {
		return r, fmt.Errorf("not a resource: %q", value)
	}
	return r, nil
}

// String is the value to store.
func (r Resource) String() string {
	out := []byte{resourceLayout}
	if r.Waited {
		out[0] = waitedLayout
	}
	number := func(n int64) {
		out = binary.LittleEndian.AppendUint64(out, math.Float64bits(float64(n)))
	}
	text := func(s string) {
		out = append(append(out, byte(len(s))), s...)
	}
	number(r.Expiry)
	number(r.Counter)
	number(r.Before)
	if r.Waited {
		number(r.Ended)
	}
	text(r.Owner)
	if r.Next == "" && r.Carried == "" && r.Record == nil {
		return string(out)
	}
	text(r.Next)
	number(r.TurnUntil)
	text(r.Carried)
	if r.Record != nil {
		number(r.Record.Ballot)
		number(r.Record.Kept)
		number(r.Record.Origin)
		out = append(out, r.Record.Result...)
	}
	return string(out)
}
