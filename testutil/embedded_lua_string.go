package testutil

import (
	"strconv"

	lua "github.com/yuin/gopher-lua"
)

// fastStrings replaces two functions of the library "string" by faster ones with the same results, because most scripts
// call them for each request.
func (s *scripts) fastStrings(l *lua.LState) {
	library := l.GetGlobal(lua.StringLibName).(*lua.LTable)

	match := library.RawGetString("match").(*lua.LFunction).GFunction
	library.RawSetString("match", l.NewFunction(func(l *lua.LState) int { return s.match(l, match) }))

	format := library.RawGetString("format").(*lua.LFunction).GFunction
	library.RawSetString("format", l.NewFunction(func(l *lua.LState) int { return formatNumber(l, format) }))
}

// A matching is a call of string.match.
type matching struct {
	text, pattern string
	from          lua.LNumber
}

// maxMatched bounds the number of calls of string.match whose results a node keeps.
const maxMatched = 500

// match is string.match. It remembers the results of its calls, because gopher-lua compiles the pattern in each call,
// and scripts read the same few texts over and over.
func (s *scripts) match(l *lua.LState, match lua.LGFunction) int {
	text, isText := l.Get(1).(lua.LString)
	pattern, isPattern := l.Get(2).(lua.LString)
	from, isFrom := l.Get(3).(lua.LNumber)
	if l.GetTop() == 2 {
		from, isFrom = 1, true
	}

	usual := isText && isPattern && isFrom
	if !usual {
		return match(l)
	}

	call := matching{string(text), string(pattern), from}
	results, known := s.matched[call]
	if known {
		for _, r := range results {
			l.Push(r)
		}
		return len(results)
	}

	n := match(l)
	results = make([]lua.LValue, n)
	for i := range results {
		results[i] = l.Get(i - n)
	}

	if len(s.matched) >= maxMatched {
		clear(s.matched)
	}
	s.matched[call] = results
	return n
}

// formatNumber is string.format. It formats one integer with %d itself.
func formatNumber(l *lua.LState, format lua.LGFunction) int {
	layout, _ := l.Get(1).(lua.LString)
	n, isNumber := l.Get(2).(lua.LNumber)
	isInteger := isNumber && lua.LNumber(int64(n)) == n
	if layout != "%d" || !isInteger || l.GetTop() != 2 {
		return format(l)
	}

	l.Push(lua.LString(strconv.FormatInt(int64(n), 10)))
	return 1
}
