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
	//go:embed lua/batch.lua
	batchLua string
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

	headCode     = code{"head", "", "", headLua}
	acquireCode  = code{"acquire", "resource, tombstone, id, lease, own, settle, carried, channel, wait, ticket", "KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[4]), 8, ARGV[8], ARGV[10], ARGV[11], ARGV[12], ARGV[13]", acquireLua}
	renewCode    = code{"renew", "resource, tombstone, id, lease, own, granted, remembered, turn, carried", "KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[4]), 7, ARGV[10], ARGV[11], ARGV[12], ARGV[13]", renewLua}
	completeCode = code{"complete", "resource, tombstone, id, lease, own", "KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[4]), 7", completeLua}
	releaseCode  = code{"release", "resource, tombstone, id, lease, own, buried, stay, idleMs, undo, wait, ticket", "KEYS[1], KEYS[2], ARGV[1], 0, 3, ARGV[2], ARGV[3], ARGV[5], ARGV[6], ARGV[7], ARGV[8]", releaseLua}

	acquireScript  = newScript(OpAcquire, whole, acquireReplies, intLua, resourceLua, lifeLua, queueLua, guardLua, requestLua, headCode.inline(), acquireCode.inline()).batched("A", []int{0, 2, 3, 4, 5}, []int{1})
	renewScript    = newScript(OpRenew, whole, renewReplies, intLua, resourceLua, lifeLua, guardLua, requestLua, headCode.inline(), renewCode.inline()).batched("R", []int{2, 3, 4, 5}, []int{0, 1})
	completeScript = newScript(OpComplete, whole, completeReplies, intLua, resourceLua, lifeLua, queueLua, guardLua, requestLua, headCode.inline(), completeCode.inline()).batched("C", nil, []int{0, 1, 2, 3, 4, 5, 6, 7})
	// A release needs life.lua for a cooldown alone: what a script makes costs the server, used or not.
	releaseScript = newScript(OpRelease, bare, releaseReplies, intLua, resourceLua, "if ARGV[3] ~= '0' then\n"+lifeLua+"end\n", queueLua, releaseCode.inline()).batched("E", []int{0, 1, 3, 4, 5, 6}, []int{2})
	batchScript   = newScript(OpBatch, whole, nil, intLua, resourceLua, lifeLua, queueLua, guardLua, requestLua, headCode.function(), acquireCode.function(), renewCode.function(), completeCode.function(), releaseCode.function(), batchLua)

	revokeScript    = newScript(OpRevoke, bare, revokeReplies, intLua, resourceLua, lifeLua, queueLua, revokeLua)
	forgetScript    = newScript(OpForget, bare, forgetReplies, intLua, resourceLua, forgetLua)
	provisionScript = newScript(OpProvision, declares, provisionReplies, intLua, guardLua, provisionLua)
	touchScript     = newScript(OpTouch, whole, touchReplies, intLua, resourceLua, lifeLua, guardLua, requestLua, headCode.inline(), touchLua)
	probeScript     = newScript(OpProbe, bare, nil, probeLua)
)

// A code is what a request does on a node: a function in a batch; in the script that is for it alone the last
// thing, without the function. Two forms pay: as a batch of one a lock would cost the server a third to a half more
// instructions, and its release two to three times as many (make servercost).
type code struct{ name, params, args, body string }

func (c code) function() string {
	return "local function " + c.name + "(" + c.params + ")\n" + c.body + "end\n"
}

func (c code) inline() string {
	if c.params == "" {
		return "do\n" + c.body + "end\n" // so that its locals are its own here, too
	}
	return "local " + c.params + " = " + c.args + "\n" + c.body
}

// A form is what an argument list has between the name of the script and what is the request's own.
type form uint8

const (
	bare     form = iota // keys and the attempt
	whole                // those, the guard record, and all of the Head
	declares             // the guard record alone, a claim, and the Head without lease and idle time
)

// A script runs atomically on one node; see the head of each .lua file for its contract. Scripts are
// idempotent per attempt, so a request may arrive twice.
type script struct {
	source  string
	sha     any // boxed once: it goes into every argument list
	op      Op
	form    form
	replies grammar

	word any // for what it does in a batch; nil = it is always sent alone
	// Which of its arguments after the head the requests of a group share there, and which are each request's own.
	shared, own []int
}

func newScript(op Op, form form, replies grammar, parts ...string) *script {
	source := strings.Join(parts, "")
	sum := sha1.Sum([]byte(source))
	return &script{source: source, sha: hex.EncodeToString(sum[:]), op: op, form: form, replies: replies}
}

func (s *script) batched(word string, shared, own []int) *script {
	s.word, s.shared, s.own = word, shared, own
	return s
}

var evalsha any = "evalsha"
