package testutil

import (
	"bufio"
	"bytes"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	luajson "github.com/alicebob/miniredis/v2/gopher-json"
	"github.com/alicebob/miniredis/v2/server"
	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"
)

// scripts runs a node's Lua scripts in one interpreter, as Redis does;
// miniredis builds a new one for every call, which takes longer than all else.
// Scripts in a transaction are left to miniredis. It is used with Node.exec
// held.
type scripts struct {
	node   *Node
	loaded map[string]script     // by SHA
	multi  map[*server.Peer]bool // connections in a transaction
	vm     *lua.LState           // made by the first script
	sha    string                // of the script that runs
	calls  int                   // that it has made
	peer   *server.Peer          // what it calls commands as
	out    bytes.Buffer
	in     *bufio.Reader
}

type script struct {
	source string
	code   *lua.FunctionProto
}

func newScripts(n *Node) *scripts {
	s := &scripts{node: n, loaded: map[string]script{}, multi: map[*server.Peer]bool{}}
	s.peer = server.NewPeer(bufio.NewWriter(&s.out))
	s.in = bufio.NewReader(&s.out)
	return s
}

func (s *scripts) close() {
	if s.vm != nil {
		s.vm.Close()
	}
}

// dispatch answers EVAL, EVALSHA and SCRIPT, and reports whether the request
// was one of these.
func (s *scripts) dispatch(peer *server.Peer, args []string) bool {
	if s.multi[peer] && args[0] != "EXEC" && args[0] != "DISCARD" {
		if args[0] == "EVALSHA" && len(args) > 1 {
			s.lend(args[1])
		}
		return false // miniredis has the queue
	}
	switch args[0] {
	case "MULTI":
		s.multi[peer] = true
		return false
	case "EXEC", "DISCARD":
		delete(s.multi, peer)
		return false
	case "EVAL", "EVALSHA", "SCRIPT":
	default:
		return false
	}
	refused := s.node.answerInfo(peer, args[0], args[1:]...)
	if refused {
		return true
	}
	if args[0] == "SCRIPT" {
		s.script(peer, args[1:])
		return true
	}
	s.eval(peer, args[0], args[1:])
	return true
}

// lend makes a script known to miniredis.
func (s *scripts) lend(sha string) {
	if known, ok := s.loaded[strings.ToLower(sha)]; ok {
		s.peer.Ctx = nil
		s.node.srv.Dispatch(s.peer, []string{"SCRIPT", "LOAD", known.source})
		s.peer.Flush()
	}
}

func (s *scripts) script(peer *server.Peer, args []string) {
	if len(args) == 0 {
		peer.WriteError("ERR wrong number of arguments for 'script' command")
		return
	}
	sub := strings.ToUpper(args[0])
	args = args[1:]
	switch {
	case sub == "LOAD" && len(args) == 1:
		sha, err := s.load(args[0])
		if err != nil {
			peer.WriteError(err.Error())
			return
		}
		peer.WriteBulk(sha)
	case sub == "EXISTS" && len(args) > 0:
		peer.WriteLen(len(args))
		for _, sha := range args {
			found := 0
			if _, ok := s.loaded[strings.ToLower(sha)]; ok {
				found = 1
			}
			peer.WriteInt(found)
		}
	case sub == "FLUSH":
		clear(s.loaded)
		peer.WriteOK()
	default:
		peer.WriteError(fmt.Sprintf("ERR unknown subcommand or wrong number of arguments for '%s'. Try SCRIPT HELP.", sub))
	}
}

// compiled holds scripts by their source. They are the same on all nodes.
var compiled sync.Map

func (s *scripts) load(source string) (sha string, err error) {
	sum := sha1.Sum([]byte(source))
	sha = hex.EncodeToString(sum[:])
	if _, ok := s.loaded[sha]; ok {
		return sha, nil
	}
	code, err := compile(source)
	if err != nil {
		return "", fmt.Errorf("ERR Error compiling script (new function): %s", oneLine(err))
	}
	s.loaded[sha] = script{source, code}
	return sha, nil
}

// compile returns the code of a script, from the cache if it is there.
func compile(source string) (*lua.FunctionProto, error) {
	if code, ok := compiled.Load(source); ok {
		return code.(*lua.FunctionProto), nil
	}
	chunk, err := parse.Parse(strings.NewReader(source), "@user_script")
	if err != nil {
		return nil, err
	}
	code, err := lua.Compile(chunk, "@user_script")
	if err != nil {
		return nil, err
	}
	compiled.Store(source, code)
	return code, nil
}

func (s *scripts) eval(peer *server.Peer, command string, args []string) {
	if len(args) < 2 {
		peer.WriteError(fmt.Sprintf("ERR wrong number of arguments for '%s' command", strings.ToLower(command)))
		return
	}
	text, count := args[0], args[1]
	args = args[2:]
	n, err := strconv.Atoi(count)
	switch {
	case err != nil:
		peer.WriteError("ERR value is not an integer or out of range")
		return
	case n < 0:
		peer.WriteError("ERR Number of keys can't be negative")
		return
	case n > len(args):
		peer.WriteError("ERR Number of keys can't be greater than number of args")
		return
	}
	sha := strings.ToLower(text)
	if command == "EVAL" {
		sha, err = s.load(text)
		if err != nil {
			peer.WriteError(err.Error())
			return
		}
	}
	known, ok := s.loaded[sha]
	if !ok {
		peer.WriteError("NOSCRIPT No matching script. Please use EVAL.")
		return
	}
	s.run(peer, sha, known.code, args[:n], args[n:])
}

func (s *scripts) run(peer *server.Peer, sha string, code *lua.FunctionProto, keys, args []string) {
	if s.vm == nil {
		s.vm = s.newVM()
	}
	l := s.vm
	s.sha = sha
	s.calls = 0
	s.peer.Ctx = peer.Ctx // the database that the connection has selected
	defer l.SetTop(0)
	l.G.Global.RawSetString("KEYS", list(l, keys))
	l.G.Global.RawSetString("ARGV", list(l, args))
	l.Push(l.NewFunctionFromProto(code))
	if err := l.PCall(0, lua.MultRet, nil); err != nil {
		peer.WriteError(s.failure(err))
		return
	}
	writeLua(peer, l.Get(1))
}

// failure is how Redis words the error that ended a script.
func (s *scripts) failure(err error) string {
	var api *lua.ApiError
	if !errors.As(err, &api) {
		return "ERR " + oneLine(err)
	}
	if t, ok := api.Object.(*lua.LTable); ok { // of a command, or error_reply's
		return fmt.Sprintf("%s script: %s, on @user_script.", lua.LVAsString(t.RawGetString("err")), s.sha)
	}
	return fmt.Sprintf("ERR %s script: %s, on @user_script.", oneLine(errors.New(api.Object.String())), s.sha)
}

func oneLine(err error) string {
	return strings.Join(strings.Fields(err.Error()), " ")
}

func list(l *lua.LState, values []string) *lua.LTable {
	t := l.CreateTable(len(values), 0)
	for _, v := range values {
		t.Append(lua.LString(v))
	}
	return t
}

// shortNumbers is tostring as Redis has it: it keeps 14 digits of a number. So
// does the operator .. there, which keeps them all here.
func shortNumbers(l *lua.LState) int {
	if n, ok := l.CheckAny(1).(lua.LNumber); ok {
		l.Push(lua.LString(fmt.Sprintf("%.14g", float64(n))))
	} else {
		l.Push(l.ToStringMeta(l.Get(1)))
	}
	return 1
}

// newVM makes an interpreter with the libraries that Redis has.
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
	l.SetGlobal("tostring", l.NewFunction(shortNumbers))
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

// redisLib is the library redis without call and pcall.
var redisLib = map[string]lua.LGFunction{
	"error_reply": func(l *lua.LState) int {
		l.Push(reply1("err", l.CheckString(1)))
		return 1
	},
	"status_reply": func(l *lua.LState) int {
		l.Push(reply1("ok", l.CheckString(1)))
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

// strictGlobals is the metatable of the globals.
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

func reply1(field, text string) *lua.LTable {
	t := &lua.LTable{}
	t.RawSetString(field, lua.LString(text))
	return t
}

// notFromScripts are commands that Redis refuses to scripts.
var notFromScripts = map[string]bool{
	"EVAL": true, "EVALSHA": true, "EVAL_RO": true, "EVALSHA_RO": true, "SCRIPT": true,
	"MULTI": true, "EXEC": true, "DISCARD": true, "WATCH": true, "UNWATCH": true,
	"AUTH": true, "HELLO": true, "QUIT": true, "CLIENT": true, "WAIT": true,
}

// call is redis.call, and redis.pcall where raise is false.
func (s *scripts) call(l *lua.LState, raise bool) int {
	fail := func(text string) int {
		if raise {
			l.Error(reply1("err", text), 1)
		}
		l.Push(reply1("err", text))
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
	s.in.Reset(&s.out)
	reply, err := server.ParseReply(s.in)
	if err != nil {
		return fail(err.Error())
	}
	l.Push(toLua(l, reply))
	return 1
}

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
	if unsupported[args[0]] || notFromScripts[args[0]] {
		return nil, errNotAllowed
	}
	return args, nil
}

func toLua(l *lua.LState, reply any) lua.LValue {
	switch r := reply.(type) {
	case int:
		return lua.LNumber(r)
	case string:
		return lua.LString(r)
	case server.Simple:
		return reply1("ok", string(r))
	case []any:
		t := l.CreateTable(len(r), 0)
		for _, e := range r {
			t.Append(toLua(l, e))
		}
		return t
	}
	return lua.LFalse // nil
}

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

// writeTable writes an error, a status, or a list up to its first nil.
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
