package testutil

import (
	"encoding/binary"
	"math"
	"strings"

	lua "github.com/yuin/gopher-lua"
)

// structLib is the part of Redis' struct library that lays out numbers and
// strings without padding: "<" (little-endian), B (a byte), d (a double), and
// c0, a string: all of it, or as long as the number before it says.
var structLib = map[string]lua.LGFunction{"pack": structPack, "unpack": structUnpack}

func structPack(l *lua.LState) int {
	var out []byte
	next := 2
	for _, option := range formatOf(l) {
		switch option {
		case 'B':
			out = append(out, byte(l.CheckInt(next)))
		case 'd':
			out = binary.LittleEndian.AppendUint64(out, math.Float64bits(float64(l.CheckNumber(next))))
		case 'c':
			out = append(out, l.CheckString(next)...)
		}
		next++
	}
	l.Push(lua.LString(out))
	return 1
}

func structUnpack(l *lua.LState) int {
	data := l.CheckString(2)
	at := l.OptInt(3, 1) - 1
	pushed := 0
	length := 0
	take := func(n int) string {
		if n < 0 || len(data)-at < n {
			l.RaiseError("data string too short")
		}
		at += n
		return data[at-n : at]
	}
	options := formatOf(l)
	for i, option := range options {
		var v lua.LValue
		switch option {
		case 'B':
			length = int(take(1)[0])
			v = lua.LNumber(length)
		case 'd':
			n := math.Float64frombits(binary.LittleEndian.Uint64([]byte(take(8))))
			length = int(n)
			v = lua.LNumber(n)
		case 'c':
			v = lua.LString(take(length))
		}
		isLength := option != 'c' && strings.HasPrefix(options[i+1:], "c")
		if isLength {
			continue // it is only the length of what follows
		}
		l.Push(v)
		pushed++
	}
	l.Push(lua.LNumber(at + 1))
	return pushed + 1
}

// formatOf returns the options of a format, one byte each.
func formatOf(l *lua.LState) string {
	format, isLittleEndian := strings.CutPrefix(l.CheckString(1), "<")
	options := strings.ReplaceAll(format, "c0", "c")
	isKnown := strings.Trim(options, "Bdc") == ""
	if !isLittleEndian || !isKnown {
		l.RaiseError("struct format %q is not supported here", l.CheckString(1))
	}
	return options
}
