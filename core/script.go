package core

import (
	"context"
	"crypto/sha1" // what EVALSHA names scripts by; nothing depends on its strength
	_ "embed"
	"encoding/hex"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/goredis"
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

	headCode     = code{"head", "", "", headLua}
	acquireCode  = code{"acquire", "resource, tombstone, id, lease, own, settle, carried, channel, wait, ticket", "KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[4]), 8, ARGV[8], ARGV[10], ARGV[11], ARGV[12], ARGV[13]", acquireLua}
	renewCode    = code{"renew", "resource, tombstone, id, lease, own, granted, remembered, turn, carried", "KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[4]), 7, ARGV[10], ARGV[11], ARGV[12], ARGV[13]", renewLua}
	completeCode = code{"complete", "resource, tombstone, id, lease, own", "KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[4]), 7", completeLua}
	releaseCode  = code{"release", "resource, tombstone, id, lease, own, buried, stay, idleMs, undo, wait, ticket", "KEYS[1], KEYS[2], ARGV[1], 0, 3, ARGV[2], ARGV[3], ARGV[5], ARGV[6], ARGV[7], ARGV[8]", releaseLua}

	acquireScript  = newScript(OpAcquire, acquireReplies, intLua, resourceLua, lifeLua, queueLua, requestLua, headCode.inline(), acquireCode.inline()).batched("A", []int{0, 2, 3, 4, 5}, []int{1})
	renewScript    = newScript(OpRenew, renewReplies, intLua, resourceLua, lifeLua, requestLua, headCode.inline(), renewCode.inline()).batched("R", []int{2, 3, 4, 5}, []int{0, 1})
	completeScript = newScript(OpComplete, completeReplies, intLua, resourceLua, lifeLua, queueLua, requestLua, headCode.inline(), completeCode.inline()).batched("C", nil, []int{0, 1, 2, 3, 4, 5, 6, 7})
	// A release needs life.lua for a cooldown alone: what a script makes costs the server, used or not.
	releaseScript = newScript(OpRelease, releaseReplies, intLua, resourceLua, "if ARGV[3] ~= '0' then\n"+lifeLua+"end\n", queueLua, releaseCode.inline()).batched("E", []int{0, 1, 3, 4, 5, 6}, []int{2})
	batchScript   = newScript(opBatch, nil, intLua, resourceLua, lifeLua, queueLua, requestLua, headCode.function(), acquireCode.function(), renewCode.function(), completeCode.function(), releaseCode.function(), batchLua)

	revokeScript    = newScript(OpRevoke, revokeReplies, intLua, resourceLua, lifeLua, queueLua, revokeLua)
	forgetScript    = newScript(OpForget, forgetReplies, intLua, resourceLua, forgetLua)
	provisionScript = newScript(opProvision, provisionReplies, intLua, provisionLua)
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

// A script runs atomically on one node; see the head of each .lua file for its contract. Scripts are
// idempotent per attempt, so a request may arrive twice.
type script struct {
	source  string
	sha     any // boxed once: it goes into every argument list
	op      OpKind
	replies grammar

	word any // for what it does in a batch; nil = it is always sent alone
	// Which of its arguments after the head the requests of a group share there, and which are each request's own.
	shared, own []int
}

func newScript(op OpKind, replies grammar, parts ...string) *script {
	source := strings.Join(parts, "")
	sum := sha1.Sum([]byte(source))
	return &script{source: source, sha: hex.EncodeToString(sum[:]), op: op, replies: replies}
}

func (s *script) batched(word string, shared, own []int) *script {
	s.word, s.shared, s.own = word, shared, own
	return s
}

// args is the argument list of EVALSHA with room for n script arguments.
func (s *script) args(n int, keys ...any) []any {
	a := make([]any, 0, 3+len(keys)+n)
	a = append(a, evalsha, s.sha, len(keys)) // small integers are not allocated
	return append(a, keys...)
}

var evalsha any = "evalsha"

// run evaluates s on client. It may block for as long as the client's own timeouts allow, whatever ctx says.
func (s *script) run(ctx context.Context, client redis.UniversalClient, args []any) (string, error) {
	cmd := redis.NewStringCmd(ctx, args...)
	err := client.Process(ctx, goredis.Once{StringCmd: cmd})
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		cmd = redis.NewStringCmd(ctx, s.inFull(args)...)
		err = client.Process(ctx, goredis.Once{StringCmd: cmd})
	}
	if err != nil {
		return "", err
	}
	return cmd.Val(), nil
}

// runBatch is run for the script that answers with a list.
func (s *script) runBatch(ctx context.Context, client redis.UniversalClient, args []any) ([]string, error) {
	cmd := redis.NewStringSliceCmd(ctx, args...)
	err := client.Process(ctx, goredis.OnceList{StringSliceCmd: cmd})
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		cmd = redis.NewStringSliceCmd(ctx, s.inFull(args)...)
		err = client.Process(ctx, goredis.OnceList{StringSliceCmd: cmd})
	}
	return cmd.Val(), err
}

// inFull is the argument list for a node that does not know the script yet.
func (s *script) inFull(args []any) []any {
	return append([]any{"eval", s.source}, args[2:]...)
}
