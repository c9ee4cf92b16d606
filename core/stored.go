package core

import (
	"encoding/binary"
	"errors"
	"math"
	"strings"
)

// A stored is what a node stores for a key, see lua/resource.lua.
type stored struct {
	expiry         nodeTime // of the lease; 0 = it was ended
	counter        uint64   // the last fencing token
	owner, carried string
	kept           nodeTime    // until when the record counts
	record         *nodeRecord // nil = none
}

// keptTaken begins the name of the owner that is left where a key stays taken and nobody holds it: after it comes the
// attempt that was released so, or nothing where it was revoked. No name of an attempt begins so.
const keptTaken = "~"

var errLayout = errors.New("what the node stores for the key was not written by this version of lockkit")

// parseStored reads what a node stores for a key.
func parseStored(text string) (s stored, err error) {
	in := packed{rest: text}
	mark := in.take(1)
	s.expiry, s.counter = nodeMillis(int64(in.number())), in.number()
	in.take(8) // the counter before
	if mark == "\x03" {
		in.take(8) // when the last hold ended
	}
	s.owner = in.text()
	if in.rest != "" {
		in.text()  // who has the next turn,
		in.take(8) // and until when
		s.carried = in.text()
	}
	if in.rest != "" {
		s.record = &nodeRecord{ballot: in.number()}
		s.kept = nodeMillis(int64(in.number()))
		s.record.Token, s.record.Result = in.number(), []byte(in.rest)
	}
	if in.bad || mark != "\x02" && mark != "\x03" {
		return stored{}, errLayout
	}
	return s, nil
}

// A packed is what Lua's struct.pack wrote. What cannot be read is zero, and noted.
type packed struct {
	rest string
	bad  bool
}

func (p *packed) take(n int) string {
	if len(p.rest) < n {
		p.bad, p.rest = true, ""
		return strings.Repeat("\x00", n)
	}
	taken := p.rest[:n]
	p.rest = p.rest[n:]
	return taken
}

// number reads a double that is a whole number.
func (p *packed) number() uint64 {
	f := math.Float64frombits(binary.LittleEndian.Uint64([]byte(p.take(8))))
	if !(0 <= f && f <= maxNumber && f == math.Trunc(f)) {
		p.bad = true
		return 0
	}
	return uint64(f)
}

// text reads a text behind its length.
func (p *packed) text() string { return p.take(int(p.take(1)[0])) }

// A carriage is what a lease carries: three texts, each behind its length; nothing where all are empty.
type carriage struct{ note, name, hint string }

// Together they fit into the 255 bytes that there are.
const maxNote, maxName, maxHint = 128, 60, 64

func (c carriage) packed() string {
	if c == (carriage{}) {
		return ""
	}
	c.name = strings.ToValidUTF8(c.name[:min(len(c.name), maxName)], "")
	text := make([]byte, 0, 3+len(c.note)+len(c.name)+len(c.hint))
	for _, s := range []string{c.note, c.name, c.hint} {
		text = append(append(text, byte(len(s))), s...)
	}
	return string(text)
}

// carried takes apart what a lease carries. What was not written by this package is empty.
func carried(text string) (c carriage) {
	in := packed{rest: text}
	if text != "" {
		c = carriage{in.text(), in.text(), in.text()}
	}
	if in.bad || in.rest != "" || len(c.note) > maxNote || len(c.name) > maxName || len(c.hint) > maxHint {
		return carriage{}
	}
	return c
}
