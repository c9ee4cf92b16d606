package wire

import (
	"encoding/binary"
	"math"
	"strings"
)

// A packed reads what Lua's struct.pack wrote. A value that cannot be read is zero, and sets bad.
type packed struct {
	rest string
	bad  bool
}

// take reads n bytes.
func (p *packed) take(n int) (taken string) {
	if len(p.rest) < n {
		p.bad = true
		p.rest = ""
		return strings.Repeat("\x00", n)
	}
	taken = p.rest[:n]
	p.rest = p.rest[n:]
	return taken
}

// number reads a double that is a whole number.
func (p *packed) number() uint64 {
	bits := binary.LittleEndian.Uint64([]byte(p.take(8)))
	f := math.Float64frombits(bits)
	isWhole := 0 <= f && f <= maxNumber && f == math.Trunc(f)
	if !isWhole {
		p.bad = true
		return 0
	}
	return uint64(f)
}

// text reads a text behind its length.
func (p *packed) text() string {
	size := p.take(1)[0]
	return p.take(int(size))
}

// What Lua's struct.unpack reads: a number ('d'), a text behind its length in a byte ('Bc0'), and 0 or 1 ('B').

func appendFloat(b []byte, f float64) []byte {
	return binary.LittleEndian.AppendUint64(b, math.Float64bits(f))
}

func appendNumber(b []byte, n int64) []byte { return appendFloat(b, float64(n)) }

// appendText cuts a text that is too long, which no attempt, waiter or memory is.
func appendText(b []byte, s string) []byte {
	s = s[:min(len(s), math.MaxUint8)]
	b = append(b, byte(len(s)))
	return append(b, s...)
}

func oneOrZero(on bool) byte {
	if on {
		return 1
	}
	return 0
}
