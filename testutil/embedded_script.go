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

// scripts runs a node's Lua scripts in one interpreter, as Redis does.
// miniredis builds a new interpreter for every call, which takes longer than
// everything else. Scripts in a transaction are left to miniredis. Its methods
// are called with Node.exec held.
type scripts struct {
	node   *Node
	loaded map[string]script     // by SHA
	multi  map[*server.Peer]bool // the connections in a transaction
	vm     *lua.LState           // nil until the first script

	// The state of the running script.
	sha   string
	calls int // the number of commands it has called

	// Scripts call commands as peer, which writes the replies to out, where replies reads them.
	peer    *server.Peer
	out     bytes.Buffer
	replies *bufio.Reader
}

type script struct {
	source string
	code   *lua.FunctionProto
}

func newScripts(n *Node) *scripts {
	s := &scripts{node: n, loaded: map[string]script{}, multi: map[*server.Peer]bool{}}
	s.peer = server.NewPeer(bufio.NewWriter(&s.out))
	s.replies = bufio.NewReader(&s.out)
	return s
}

func (s *scripts) close() {
	if s.vm != nil {
		s.vm.Close()
	}
}

// dispatch answers EVAL, EVALSHA and SCRIPT, except in a transaction, and
// reports whether it has answered. It keeps track of transactions.
func (s *scripts) dispatch(peer *server.Peer, args []string) bool {
	if s.multi[peer] && args[0] != "EXEC" && args[0] != "DISCARD" {
		// miniredis queues the request and runs it at EXEC, so it must know the script.
		if args[0] == "EVALSHA" && len(args) > 1 {
			s.loadIntoMiniredis(args[1])
		}
		return false
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

	// These do not pass through miniredis, which calls the hook for all other commands.
	refused := s.node.preHook(peer, args[0], args[1:]...)
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

// loadIntoMiniredis makes a script known to miniredis, too.
func (s *scripts) loadIntoMiniredis(sha string) {
	if loaded, ok := s.loaded[strings.ToLower(sha)]; ok {
		s.peer.Ctx = nil
		s.node.srv.Dispatch(s.peer, []string{"SCRIPT", "LOAD", loaded.source})
		s.peer.Flush()
	}
}

// script answers SCRIPT.
func (s *scripts) script(peer *server.Peer, args []string) {
	if len(args) == 0 {
		peer.WriteError("ERR wrong number of arguments for 'script' command")
		return
	}

	subcommand := strings.ToUpper(args[0])
	args = args[1:]
	switch {
	case subcommand == "LOAD" && len(args) == 1:
		sha, err := s.load(args[0])
		if err != nil {
			peer.WriteError(err.Error())
			return
		}
		peer.WriteBulk(sha)

	case subcommand == "EXISTS" && len(args) > 0:
		peer.WriteLen(len(args))
		for _, sha := range args {
			found := 0
			if _, ok := s.loaded[strings.ToLower(sha)]; ok {
				found = 1
			}
			peer.WriteInt(found)
		}

	case subcommand == "FLUSH":
		clear(s.loaded)
		peer.WriteOK()

	default:
		peer.WriteError(fmt.Sprintf(
			"ERR unknown subcommand or wrong number of arguments for '%s'. Try SCRIPT HELP.",
			subcommand,
		))
	}
}

// codeCache has the code of scripts by their source, for all nodes.
var codeCache sync.Map

// load compiles a script, adds it to the loaded ones and returns its SHA.
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
	if code, ok := codeCache.Load(source); ok {
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

	codeCache.Store(source, code)
	return code, nil
}

// eval answers EVAL and EVALSHA. args are the source or SHA, the number of keys, the keys, and the script's arguments.
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

	loaded, ok := s.loaded[sha]
	if !ok {
		peer.WriteError("NOSCRIPT No matching script. Please use EVAL.")
		return
	}

	s.run(peer, sha, loaded.code, args[:n], args[n:])
}

// run runs a script and answers with its result, or with its error.
func (s *scripts) run(peer *server.Peer, sha string, code *lua.FunctionProto, keys, args []string) {
	if s.vm == nil {
		s.vm = s.newVM()
	}

	l := s.vm
	s.sha = sha
	s.calls = 0
	s.peer.Ctx = peer.Ctx // with the database that the connection has selected
	defer l.SetTop(0)

	l.G.Global.RawSetString("KEYS", stringTable(l, keys))
	l.G.Global.RawSetString("ARGV", stringTable(l, args))
	l.Push(l.NewFunctionFromProto(code))
	if err := l.PCall(0, lua.MultRet, nil); err != nil {
		peer.WriteError(s.errorText(err))
		return
	}

	writeLua(peer, l.Get(1))
}

// errorText returns the error that ended a script as Redis words it.
func (s *scripts) errorText(err error) string {
	var api *lua.ApiError
	if !errors.As(err, &api) {
		return "ERR " + oneLine(err)
	}
	if t, ok := api.Object.(*lua.LTable); ok { // from a command, or from redis.error_reply
		return fmt.Sprintf("%s script: %s, on @user_script.", lua.LVAsString(t.RawGetString("err")), s.sha)
	}
	return fmt.Sprintf("ERR %s script: %s, on @user_script.", oneLine(errors.New(api.Object.String())), s.sha)
}

func oneLine(err error) string {
	return strings.Join(strings.Fields(err.Error()), " ")
}

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
