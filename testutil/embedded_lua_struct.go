package testutil

import (
	"encoding/binary"
	"math"
	"strings"

	lua "github.com/yuin/gopher-lua"
)

// structLib is the part of Redis' Lua library "struct" that packs numbers and
// strings without padding. A format begins with "<" (little-endian). Its
// options are B (a byte), d (a double) and c0 (a string): pack writes the whole
// string; unpack takes its length from the number before it.
var structLib = map[string]lua.LGFunction{"pack": structPack, "unpack": structUnpack}

func structPack(l *lua.LState) int {
	var out []byte
	next := 2
	for _, option := range formatOptions(l) {
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
	read := func(n int) string {
		if n < 0 || len(data)-at < n {
			l.RaiseError("data string too short")
		}
		at += n
		return data[at-n : at]
	}

	options := formatOptions(l)
	for i, option := range options {
		var v lua.LValue
		switch option {
		case 'B':
			length = int(read(1)[0])
			v = lua.LNumber(length)
		case 'd':
			n := math.Float64frombits(binary.LittleEndian.Uint64([]byte(read(8))))
			length = int(n)
			v = lua.LNumber(n)
		case 'c':
			v = lua.LString(read(length))
		}

		// A number before a string is only the string's length, and not a result.
		isLength := option != 'c' && strings.HasPrefix(options[i+1:], "c")
		if isLength {
			continue
		}
		l.Push(v)
		pushed++
	}

	l.Push(lua.LNumber(at + 1))
	return pushed + 1
}

// formatOptions returns the options of the format in the first argument, one
// byte each. It raises an error for a format that is not supported.
func formatOptions(l *lua.LState) string {
	format, isLittleEndian := strings.CutPrefix(l.CheckString(1), "<")
	options := strings.ReplaceAll(format, "c0", "c")
	isKnown := strings.Trim(options, "Bdc") == ""
	if !isLittleEndian || !isKnown {
		l.RaiseError("struct format %q is not supported here", l.CheckString(1))
	}
	return options
}
