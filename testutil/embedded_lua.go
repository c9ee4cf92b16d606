package testutil

import (
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	luajson "github.com/alicebob/miniredis/v2/gopher-json"
	"github.com/alicebob/miniredis/v2/server"
	lua "github.com/yuin/gopher-lua"
)

func stringTable(l *lua.LState, values []string) *lua.LTable {
	t := l.CreateTable(len(values), 0)
	for _, v := range values {
		t.Append(lua.LString(v))
	}
	return t
}

// toString is Redis' tostring, which keeps 14 digits of a number. In Redis the operator .. does the same; here it keeps
// all digits.
func toString(l *lua.LState) int {
	if n, ok := l.CheckAny(1).(lua.LNumber); ok {
		l.Push(lua.LString(fmt.Sprintf("%.14g", float64(n))))
	} else {
		l.Push(l.ToStringMeta(l.Get(1)))
	}
	return 1
}

// newVM returns an interpreter with the libraries that Redis provides.
func (s *scripts) newVM() *lua.LState {
	l := lua.NewState(lua.Options{SkipOpenLibs: true})
	for _, lib := range luaLibs {
		l.Push(l.NewFunction(lib.open))
		l.Push(lua.LString(lib.name))
		l.Call(1, 0)
	}

	l.Push(l.NewFunction(luajson.Loader))
	l.Call(0, 1)
	l.SetGlobal("cjson", l.Get(-1))
	l.SetTop(0)

	s.fastStrings(l)
	l.SetGlobal("tostring", l.NewFunction(toString))
	l.RegisterModule("os", map[string]lua.LGFunction{"clock": func(l *lua.LState) int {
		l.Push(lua.LNumber(0))
		return 1
	}})

	l.RegisterModule("struct", structLib)

	redis := l.SetFuncs(l.NewTable(), redisLib)
	l.SetFuncs(redis, map[string]lua.LGFunction{
		"call":  func(l *lua.LState) int { return s.call(l, true) },
		"pcall": func(l *lua.LState) int { return s.call(l, false) },
	})

	for i, level := range []string{"LOG_DEBUG", "LOG_VERBOSE", "LOG_NOTICE", "LOG_WARNING"} {
		redis.RawSetString(level, lua.LNumber(i))
	}

	l.SetGlobal("redis", redis)
	l.SetGlobal("server", redis)

	// Last, because it forbids new globals.
	l.SetMetatable(l.G.Global, l.SetFuncs(l.NewTable(), strictGlobals))
	return l
}

// luaLibs are the standard libraries that scripts can use.
var luaLibs = []struct {
	name string
	open lua.LGFunction
}{
	{lua.LoadLibName, lua.OpenPackage},
	{lua.BaseLibName, lua.OpenBase},
	{lua.CoroutineLibName, lua.OpenCoroutine},
	{lua.TabLibName, lua.OpenTable},
	{lua.StringLibName, lua.OpenString},
	{lua.MathLibName, lua.OpenMath},
}

// redisLib is the Lua library "redis", except for call and pcall, which need the node.
var redisLib = map[string]lua.LGFunction{
	"error_reply": func(l *lua.LState) int {
		l.Push(tableOf("err", l.CheckString(1)))
		return 1
	},
	"status_reply": func(l *lua.LState) int {
		l.Push(tableOf("ok", l.CheckString(1)))
		return 1
	},
	"log": func(*lua.LState) int { return 0 },
	"replicate_commands": func(l *lua.LState) int {
		l.Push(lua.LTrue)
		return 1
	},
	"sha1hex": func(l *lua.LState) int {
		sum := sha1.Sum([]byte(l.CheckString(1)))
		l.Push(lua.LString(hex.EncodeToString(sum[:])))
		return 1
	},
}

// strictGlobals is the metatable of the globals: as in Redis, scripts can neither add a global nor read an unknown one.
var strictGlobals = map[string]lua.LGFunction{
	"__newindex": func(l *lua.LState) int {
		l.RaiseError("Attempt to modify a readonly table: global variable '%s'", l.Get(2))
		return 0
	},
	"__index": func(l *lua.LState) int {
		l.RaiseError("Script attempted to access nonexistent global variable '%s'", l.Get(2))
		return 0
	},
}

// tableOf returns a Lua table with one field.
func tableOf(field, text string) *lua.LTable {
	t := &lua.LTable{}
	t.RawSetString(field, lua.LString(text))
	return t
}

// isForbidden has the commands that Redis does not let scripts call.
var isForbidden = map[string]bool{
	"EVAL": true, "EVALSHA": true, "EVAL_RO": true, "EVALSHA_RO": true, "SCRIPT": true,
	"MULTI": true, "EXEC": true, "DISCARD": true, "WATCH": true, "UNWATCH": true,
	"AUTH": true, "HELLO": true, "QUIT": true, "CLIENT": true, "WAIT": true,
}

// call implements redis.call if raise is true, and redis.pcall otherwise: an error is raised, or returned as a table.
func (s *scripts) call(l *lua.LState, raise bool) int {
	fail := func(text string) int {
		if raise {
			l.Error(tableOf("err", text), 1)
		}
		l.Push(tableOf("err", text))
		return 1
	}

	args, err := callArgs(l)
	if err != nil {
		return fail(err.Error())
	}

	s.calls++
	s.node.mu.Lock()
	hook := s.node.faults.onCall
	s.node.mu.Unlock()
	if hook != nil {
		if text := hook(s.calls, args); text != "" {
			return fail(text)
		}
	}

	s.out.Reset()
	s.node.srv.Dispatch(s.peer, args)
	s.peer.Flush()
	s.replies.Reset(&s.out)
	reply, err := server.ParseReply(s.replies)
	if err != nil {
		return fail(err.Error())
	}

	l.Push(toLua(l, reply))
	return 1
}

// Errors of redis.call, as Redis words them.
var (
	errNoArgs     = errors.New("ERR Please specify at least one argument for this redis.call()")
	errArgType    = errors.New("ERR Lua redis lib command arguments must be strings or integers")
	errNotAllowed = errors.New("ERR This Redis command is not allowed from script")
)

// callArgs returns the arguments of redis.call, with the command in upper case.
func callArgs(l *lua.LState) ([]string, error) {
	if l.GetTop() == 0 {
		return nil, errNoArgs
	}

	args := make([]string, l.GetTop())
	for i := range args {
		switch a := l.Get(i + 1).(type) {
		case lua.LString:
			args[i] = string(a)
		case lua.LNumber:
			args[i] = a.String()
		default:
			return nil, errArgType
		}
	}

	args[0] = strings.ToUpper(args[0])
	if isUnsupported[args[0]] || isForbidden[args[0]] {
		return nil, errNotAllowed
	}

	return args, nil
}

// toLua converts a reply of miniredis to the Lua value that Redis makes of it.
func toLua(l *lua.LState, reply any) lua.LValue {
	switch r := reply.(type) {
	case int:
		return lua.LNumber(r)
	case string:
		return lua.LString(r)
	case server.Simple:
		return tableOf("ok", string(r))
	case []any:
		t := l.CreateTable(len(r), 0)
		for _, e := range r {
			t.Append(toLua(l, e))
		}
		return t
	}

	return lua.LFalse // nil
}

// writeLua writes the result of a script as the reply that Redis makes of it.
func writeLua(peer *server.Peer, value lua.LValue) {
	switch v := value.(type) {
	case lua.LBool:
		if !v {
			peer.WriteNull()
			return
		}
		peer.WriteInt(1)
	case lua.LNumber:
		peer.WriteInt(int(v))
	case lua.LString:
		peer.WriteBulk(string(v))
	case *lua.LTable:
		writeTable(peer, v)
	default:
		peer.WriteNull()
	}
}

// writeTable writes a table as an error, as a status, or as a list that ends before its first nil.
func writeTable(peer *server.Peer, v *lua.LTable) {
	if text, ok := v.RawGetString("err").(lua.LString); ok {
		peer.WriteError(string(text))
		return
	}
	if text, ok := v.RawGetString("ok").(lua.LString); ok {
		peer.WriteInline(string(text))
		return
	}

	size := 0
	for v.RawGetInt(size+1) != lua.LNil {
		size++
	}

	peer.WriteLen(size)
	for i := range size {
		writeLua(peer, v.RawGetInt(i+1))
	}
}
