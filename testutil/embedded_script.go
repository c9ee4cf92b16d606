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

	"github.com/alicebob/miniredis/v2/server"
	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"

	"github.com/lockkit/lockkit/internal/goscript"
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

	matched map[matching][]lua.LValue // results of string.match

	find goscript.Finder            // nil: all scripts run in Lua
	inGo map[string]goscript.Script // the results of find, by SHA

	// The state of the running script.
	sha   string
	calls int // the number of commands it has called

	// Scripts call commands as peer, which writes the replies to out, where replies reads them.
	peer    *server.Peer
	out     bytes.Buffer
	replies *bufio.Reader
}

type script struct {
	sha    string
	source string
	code   *lua.FunctionProto
}

func newScripts(n *Node) *scripts {
	s := &scripts{
		node:    n,
		loaded:  map[string]script{},
		multi:   map[*server.Peer]bool{},
		matched: map[matching][]lua.LValue{},
		inGo:    map[string]goscript.Script{},
	}
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

// compiled has the scripts by their source, for all nodes.
var compiled sync.Map

// load compiles a script, adds it to the loaded ones and returns its SHA.
func (s *scripts) load(source string) (sha string, err error) {
	loaded, err := compile(source)
	if err != nil {
		return "", fmt.Errorf("ERR Error compiling script (new function): %s", oneLine(err))
	}

	s.loaded[loaded.sha] = loaded
	return loaded.sha, nil
}

// compile compiles a script, unless it is known.
func compile(source string) (script, error) {
	if known, ok := compiled.Load(source); ok {
		return known.(script), nil
	}

	chunk, err := parse.Parse(strings.NewReader(source), "@user_script")
	if err != nil {
		return script{}, err
	}

	code, err := lua.Compile(chunk, "@user_script")
	if err != nil {
		return script{}, err
	}

	// A script cannot name the table arg of its arguments, which would be made for each call.
	code.IsVarArg &^= lua.VarArgNeedsArg

	sum := sha1.Sum([]byte(source))
	sha := hex.EncodeToString(sum[:])
	compiled.Store(source, script{sha, source, code})
	return script{sha, source, code}, nil
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

	var sha string
	if command == "EVALSHA" {
		sha = strings.ToLower(text)
	} else {
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

	keys, args := args[:n], args[n:]
	answered := s.runInGo(peer, loaded, keys, args)
	if !answered {
		s.run(peer, sha, loaded.code, keys, args)
	}
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
