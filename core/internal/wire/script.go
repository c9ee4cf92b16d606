package wire

import (
	"crypto/sha1" // what EVALSHA names scripts by; nothing depends on its strength
	_ "embed"
	"encoding/hex"
	"strings"
)

var (
	//go:embed lua/int.lua
	intLua string
	//go:embed lua/resource.lua
	resourceLua string
	//go:embed lua/life.lua
	lifeLua string
	//go:embed lua/queue.lua
	queueLua string
	//go:embed lua/request.lua
	requestLua string
	//go:embed lua/guard.lua
	guardLua string
	//go:embed lua/head.lua
	headLua string
	//go:embed lua/acquire.lua
	acquireLua string
	//go:embed lua/renew.lua
	renewLua string
	//go:embed lua/release.lua
	releaseLua string
	//go:embed lua/complete.lua
	completeLua string
	//go:embed lua/requests.lua
	requestsLua string
	//go:embed lua/run.lua
	runLua string
	//go:embed lua/one-acquire.lua
	oneAcquireLua string
	//go:embed lua/one-release.lua
	oneReleaseLua string
	//go:embed lua/provision.lua
	provisionLua string
	//go:embed lua/revoke.lua
	revokeLua string
	//go:embed lua/forget.lua
	forgetLua string
	//go:embed lua/touch.lua
	touchLua string
	//go:embed lua/probe.lua
	probeLua string

	// The complete code, which stands where run.lua makes it: what a script makes costs the server, used or not.
	whole = "(function()\n" + intLua + resourceLua + lifeLua + queueLua + guardLua + requestLua + function("head", "", headLua) +
		function("acquire", "resource, tombstone, id, lease, proposed, settle, carried, channel, wait, ticket", acquireLua) +
		function("renew", "resource, tombstone, id, lease, token, confirmed, granted, remembered, turn, carried", renewLua) +
		function("complete", "resource, tombstone, id, ballot, remembered, retention, by, buried, decided, wait, result", completeLua) +
		function("release", "resource, tombstone, id, drop, buried, stay, undo, wait, ticket", releaseLua) +
		function("touch", "resource", touchLua) + requestsLua + "end)()"
	run = strings.Replace(runLua, "make()", whole, 1)

	// A plain request that travels alone has a script that does it before all else: as a batch of one it would cost the server
	// 4 to 7 % more (make servercost).
	runScript     = newScript("local us, tried\n", run)
	acquireScript = newScript("local line, known, votes, at = nil, nil, nil, 43\n", oneAcquireLua, run)
	guardedScript = newScript("local line, known, votes, _, at = struct.unpack('<Bc0Bc0dB', ARGV[1], 42)\n", oneAcquireLua, run)
	releaseScript = newScript(oneReleaseLua, run)

	revokeScript    = newScript(intLua, resourceLua, lifeLua, "local due\n", queueLua, revokeLua)
	forgetScript    = newScript(intLua, resourceLua, forgetLua)
	provisionScript = newScript(intLua, guardLua, provisionLua)
	probeScript     = newScript(probeLua)
)

func function(name, params, body string) string {
	return "local function " + name + "(" + params + ")\n" + body + "end\n"
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
