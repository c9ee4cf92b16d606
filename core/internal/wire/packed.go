package wire

import (
	"encoding/binary"
	"math"
	"strings"
)

// An unpacker reads values that Lua's struct.pack wrote. A value that cannot be read is zero, and sets invalid.
type unpacker struct {
	rest    string
	invalid bool
}

// take reads n bytes.
func (u *unpacker) take(n int) (taken string) {
	if len(u.rest) < n {
		u.invalid = true
		u.rest = ""
		return strings.Repeat("\x00", n)
	}

	taken = u.rest[:n]
	u.rest = u.rest[n:]
	return taken
}

// number reads a double that is a whole number.
func (u *unpacker) number() uint64 {
	bits := binary.LittleEndian.Uint64([]byte(u.take(8)))
	f := math.Float64frombits(bits)
	isWhole := 0 <= f && f <= maxNumber && f == math.Trunc(f)
	if !isWhole {
		u.invalid = true
		return 0
	}
	return uint64(f)
}

// text reads a text that is preceded by its length.
func (u *unpacker) text() string {
	size := u.take(1)[0]
	return u.take(int(size))
}

// These functions append values in the formats of Lua's struct.unpack: a number ('d'), a text preceded by its length
// in a byte ('Bc0'), and 0 or 1 ('B').

func appendFloat(b []byte, f float64) []byte {
	return binary.LittleEndian.AppendUint64(b, math.Float64bits(f))
}

func appendNumber(b []byte, n int64) []byte {
	return appendFloat(b, float64(n))
}

// appendText truncates a text of more than 255 bytes. No name of an attempt, waiter or memory is that long.
func appendText(b []byte, s string) []byte {
	s = s[:min(len(s), math.MaxUint8)]
	b = append(b, byte(len(s)))
	return append(b, s...)
}

func boolByte(on bool) byte {
	if on {
		return 1
	}
	return 0
}
