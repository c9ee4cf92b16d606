package testutil

import (
	"encoding/binary"
	"fmt"
	"math"
)

// A Resource is the value that a node stores for a key, decoded. For the
// meaning of the fields, see resource.lua in core. Times are in ms, by the
// server's clock.
type Resource struct {
	Expiry        int64  // of the lease; 0 = there is none, or it was ended
	Counter       int64  // the last fencing token
	Before        int64  // Counter before the owner was granted the lease; -1 = it was not granted
	TurnUntil     int64  // until then, Next may have the key next
	Owner         string // the attempt that has the lease, or had it last
	Next          string // the attempt that may have the key next
	Metadata      string // by the owner's holder
	MayHaveWaiter bool   // there may be a waiter for the key
	Ended         int64  // if Waited: when the last hold ended, if it was released
	Record        *ResourceRecord
}

// A ResourceRecord is a completion record on one node.
type ResourceRecord struct {
	Ballot, KeptUntil, Origin int64
	Result                    string
}

// The first byte of a stored value: with waitedLayout, the field Ended is stored too.
const resourceLayout, waitedLayout = 4, 5

// ParseResource decodes a stored value. An empty value is a free key that was
// never used.
func ParseResource(value string) (Resource, error) {
	r := Resource{Before: -1}
	if value == "" {
		return r, nil
	}

	r.MayHaveWaiter = value[0] == waitedLayout
	isKnown := value[0] == resourceLayout || r.MayHaveWaiter
	d := decoder{rest: value[1:]}
	r.decode(&d)
	if !isKnown || d.failed {
		return r, fmt.Errorf("not a resource: %q", value)
	}

	return r, nil
}

// decode reads the fields in the order in which they are stored. A value may end after Owner, or after Carried.
func (r *Resource) decode(d *decoder) {
	r.Expiry = d.number()
	r.Counter = d.number()
	r.Before = d.number()
	if r.MayHaveWaiter {
		r.Ended = d.number()
	}

	r.Owner = d.text()
	if d.rest == "" {
		return
	}

	r.Next = d.text()
	r.TurnUntil = d.number()
	r.Metadata = d.text()
	if d.rest == "" {
		return
	}

	r.Record = &ResourceRecord{}
	r.Record.Ballot = d.number()
	r.Record.KeptUntil = d.number()
	r.Record.Origin = d.number()
	r.Record.Result = d.rest
}

// A decoder reads the fields of a stored value from rest.
type decoder struct {
	rest   string
	failed bool // rest was too short for a field
}

// number reads a double, the type of numbers in Lua.
func (d *decoder) number() int64 {
	const size = 8
	if len(d.rest) < size {
		d.failed = true
		return 0
	}
	bits := binary.LittleEndian.Uint64([]byte(d.rest[:size]))
	d.rest = d.rest[size:]
	return int64(math.Float64frombits(bits))
}

// text reads a string that follows a byte with its length.
func (d *decoder) text() string {
	if d.rest == "" {
		d.failed = true
		return ""
	}

	end := 1 + int(d.rest[0])
	if len(d.rest) < end {
		d.failed = true
		return ""
	}

	s := d.rest[1:end]
	d.rest = d.rest[end:]
	return s
}

// String returns the value to store.
func (r Resource) String() string {
	out := []byte{resourceLayout}
	if r.MayHaveWaiter {
		out[0] = waitedLayout
	}

	out = appendNumbers(out, r.Expiry, r.Counter, r.Before)
	if r.MayHaveWaiter {
		out = appendNumbers(out, r.Ended)
	}

	out = appendText(out, r.Owner)
	if r.Next == "" && r.Metadata == "" && r.Record == nil {
		return string(out)
	}

	out = appendText(out, r.Next)
	out = appendNumbers(out, r.TurnUntil)
	out = appendText(out, r.Metadata)
	if r.Record != nil {
		out = appendNumbers(out, r.Record.Ballot, r.Record.KeptUntil, r.Record.Origin)
		out = append(out, r.Record.Result...)
	}

	return string(out)
}

func appendNumbers(out []byte, numbers ...int64) []byte {
	for _, n := range numbers {
		out = binary.LittleEndian.AppendUint64(out, math.Float64bits(float64(n)))
	}
	return out
}

// appendText appends a byte with the length of s, and s.
func appendText(out []byte, s string) []byte {
	out = append(out, byte(len(s)))
	return append(out, s...)
}
