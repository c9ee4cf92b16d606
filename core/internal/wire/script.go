package wire

import (
	"crypto/sha1" // EVALSHA names scripts by it; nothing depends on its strength
	"embed"
	"encoding/hex"
	"fmt"
	"strings"
)

//go:embed lua
var lua embed.FS

// sources returns the Lua files of these names, one after the other.
func sources(names ...string) (all string) {
	for _, name := range names {
		source, err := lua.ReadFile("lua/" + name + ".lua")
		if err != nil {
			panic(err)
		}

		all += string(source)
	}
	return all
}

var (
	// The complete code replaces the call of make in run.lua, so that it is only made if a request needs it: each
	// function that a script makes costs the server time, even if it is not called.
	completeCode = "(function()\n" +
		sources("int", "resource", "life", "queue", "guard", "request") +
		luaFunction("head", "") +
		luaFunction("acquire",
			"resource, tombstone, id, lease, proposed, settle, carried, channel, wait, ticket") +
		luaFunction("renew",
			"resource, tombstone, id, lease, token, confirmed, granted, remembered, turn, carried") +
		luaFunction("complete",
			"resource, tombstone, id, ballot, remembered, retention, by, buried, decided, wait, result") +
		luaFunction("release",
			"resource, tombstone, id, drop, buried, cooldown, again, undo, wait, ticket") +
		luaFunction("touch", "resource") +
		sources("requests") +
		"end)()"
	runCode = strings.Replace(sources("run"), "make()", completeCode, 1)

	// The scripts of plain requests. If such a request is alone in its command, its script tries the plain form
	// first: as a batch of one it would cost the server 4 to 7 % more (make servercost).
	runScript     = newScript("local us, tried\n", runCode)
	acquireScript = newScript("local line, known, votes\n", unpackAcquire("", "", 44), sources("one-acquire"), runCode)
	guardedScript = newScript(
		unpackAcquire("line, known, votes, _, _, ", "Bc0Bc0dBB", 42),
		sources("one-acquire"),
		runCode,
	)
	releaseScript = newScript(sources("one-release"), runCode)

	revokeScript    = newScript(sources("int", "resource", "life"), "local due\n", sources("queue", "revoke"))
	forgetScript    = newScript(sources("int", "resource", "forget"))
	provisionScript = newScript(sources("int", "node", "guard", "provision"))
	lowerScript     = newScript(sources("int", "node", "guard", "lower"))
	probeScript     = newScript(sources("probe"))
)

// unpackAcquire returns Lua code that unpacks the argument of a lone acquisition from byte at on: first names, which
// have these formats, then the fields of the acquisition.
func unpackAcquire(names, formats string, at int) string {
	return fmt.Sprintf(
		"local %slo, hi, near, lease, life, token, id, behind = struct.unpack('<%sddddBc0dBc0dc0', ARGV[1], %d)\n",
		names, formats, at,
	)
}

// luaFunction returns the Lua file of that name as a function with these parameters.
func luaFunction(name, params string) string {
	return "local function " + name + "(" + params + ")\n" + sources(name) + "end\n"
}

// A script runs atomically on one node. The head of each .lua file has its contract. A request may arrive twice:
// scripts are idempotent per attempt, except that a write-back is refused the second time.
type script struct {
	source string
	sha    any // boxed once, because it is in every argument list
}

func newScript(parts ...string) *script {
	source := strings.Join(parts, "")
	sum := sha1.Sum([]byte(source))
	return &script{source: source, sha: hex.EncodeToString(sum[:])}
}

// evalsha is boxed once, because it is in every argument list.
var evalsha any = "evalsha"
