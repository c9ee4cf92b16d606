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

// What a lease carries is who holds it and what for, behind a mark, each with its length; then the hint of an observer, as
// it is, and what Shows was given: then a mark, the length of the hint and the hint stand before that. A hint that begins
// with a mark is written in that way, too.
const (
	signedMark = "\x01"
	shownMark  = "\x00"
	maxCarried = 255
	maxHint    = 128
	maxShown   = maxCarried - 2
	maxSigned  = 64 // of who, and of what for
)

// signing is the part of what a lease carries that says who holds it, and what for; empty where it is not to.
func signing(by, name string) string {
	if by == "" {
		return ""
	}
	by, name = cut(by), cut(name)
	return signedMark + string([]byte{byte(len(by))}) + by + string([]byte{byte(len(name))}) + name
}

// cut is text where it is short enough, and as many of its characters as there is room for.
func cut(text string) string {
	text = text[:min(len(text), maxSigned)]
	return strings.ToValidUTF8(text, "")
}

// carrying is what a lease carries. Where not all fits, who holds it is left out, and then the hint.
func carrying(signed, hint, shown string) string {
	if len(hint)+len(shown) > maxShown {
		hint = ""
	}
	text := hint
	if shown != "" || strings.HasPrefix(hint, shownMark) || strings.HasPrefix(hint, signedMark) {
		text = shownMark + string([]byte{byte(len(hint))}) + hint + shown
	}
	if signed == "" || len(signed)+len(text) > maxCarried {
		return text
	}
	return signed + text
}

// A carriage is what a lease carries, taken apart.
type carriage struct{ by, name, hint, shown string }

// carried takes apart what a lease carries. What was not written by this package is empty.
func carried(text string) (c carriage) {
	if len(text) > maxCarried {
		return c
	}
	in := packed{rest: text}
	if strings.HasPrefix(text, signedMark) {
		in.take(1)
		c.by, c.name = in.text(), in.text()
	}
	if strings.HasPrefix(in.rest, shownMark) {
		in.take(1)
		c.hint = in.text()
		c.shown = in.rest
	} else {
		c.hint = in.rest
	}
	if in.bad {
		return carriage{}
	}
	if len(c.hint) > maxHint {
		c.hint = ""
	}
	return c
}
