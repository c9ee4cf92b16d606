package wire

import (
	"crypto/sha1" // what EVALSHA names scripts by; nothing depends on its strength
	"embed"
	"encoding/hex"
	"fmt"
	"strings"
)

//go:embed lua
var lua embed.FS

// text is the scripts of these names, one after the other.
func text(names ...string) (all string) {
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
	// The complete code, which stands where run.lua makes it: what a script makes costs the server, used or not.
	whole = "(function()\n" + text("int", "resource", "life", "queue", "guard", "request") + function("head", "") +
		function("acquire", "resource, tombstone, id, lease, proposed, settle, carried, channel, wait, ticket") +
		function("renew", "resource, tombstone, id, lease, token, confirmed, granted, remembered, turn, carried") +
		function("complete", "resource, tombstone, id, ballot, remembered, retention, by, buried, decided, wait, result") +
		function("release", "resource, tombstone, id, drop, buried, cooldown, again, undo, wait, ticket") +
		function("touch", "resource") + text("requests") + "end)()"
	run = strings.Replace(text("run"), "make()", whole, 1)

	// A plain request that travels alone has a script that does it before all else: as a batch of one it would cost the server
	// 4 to 7 % more (make servercost).
	runScript     = newScript("local us, tried\n", run)
	acquireScript = newScript("local line, known, votes\n", apart("", "", 44), text("one-acquire"), run)
	guardedScript = newScript(apart("line, known, votes, _, _, ", "Bc0Bc0dBB", 42), text("one-acquire"), run)
	releaseScript = newScript(text("one-release"), run)

	revokeScript    = newScript(text("int", "resource", "life"), "local due\n", text("queue", "revoke"))
	forgetScript    = newScript(text("int", "resource", "forget"))
	provisionScript = newScript(text("int", "node", "guard", "provision"))
	lowerScript     = newScript(text("int", "node", "guard", "lower"))
	probeScript     = newScript(text("probe"))
)

// apart is Lua that takes the argument of a lone acquisition apart, from where these names and their formats stand.
func apart(names, formats string, at int) string {
	return fmt.Sprintf("local %slo, hi, near, lease, life, token, id, behind = struct.unpack('<%sddddBc0dBc0dc0', ARGV[1], %d)\n", names, formats, at)
}

// function is the script of that name as a function.
func function(name, params string) string {
	return "local function " + name + "(" + params + ")\n" + text(name) + "end\n"
}

// A script runs atomically on one node; see the head of each .lua file for its contract. Scripts are
// idempotent per attempt, so a request may arrive twice.
type script struct {
	source string
	sha    any // boxed once: it goes into every argument list
}

func newScript(parts ...string) *script {
	source := strings.Join(parts, "")
	sum := sha1.Sum([]byte(source))
	return &script{source: source, sha: hex.EncodeToString(sum[:])}
}

var evalsha any = "evalsha"
