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
	at, pushed, length := l.OptInt(3, 1)-1, 0, 0
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
		if option != 'c' && i+1 < len(options) && options[i+1] == 'c' {
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
	format := strings.TrimPrefix(l.CheckString(1), "<")
	options := strings.ReplaceAll(format, "c0", "c")
	if len(format) == len(l.CheckString(1)) || strings.Trim(options, "Bdc") != "" {
		l.RaiseError("struct format %q is not supported here", l.CheckString(1))
	}
	return options
}
