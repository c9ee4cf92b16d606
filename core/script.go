package core

import (
	"context"
	"crypto/sha1" // what EVALSHA names scripts by; nothing depends on its strength
	_ "embed"
	"encoding/hex"
	"strings"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed lua/int.lua
	intLua string
	//go:embed lua/resource.lua
	resourceLua string
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

	acquireScript   = newScript(OpAcquire, acquireReplies, intLua, resourceLua, headLua, acquireLua, "return head() or acquire(KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[4]), 8)\n").batched("A", 3)
	renewScript     = newScript(OpRenew, renewReplies, intLua, resourceLua, headLua, renewLua, "return head() or renew(KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[4]), 8)\n").batched("R", 5)
	completeScript  = newScript(OpComplete, completeReplies, intLua, resourceLua, headLua, completeLua, "return head() or complete(KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[4]), 8)\n").batched("C", 7)
	releaseScript   = newScript(OpRelease, releaseReplies, intLua, resourceLua, releaseLua, "return release(KEYS[1], KEYS[2], ARGV[1], 0, 1)\n").batched("E", 5)
	batchScript     = newScript(opBatch, nil, intLua, resourceLua, headLua, acquireLua, renewLua, completeLua, releaseLua, batchLua)
	provisionScript = newScript(opProvision, provisionReplies, intLua, provisionLua)
)

// A script runs atomically on one node; see the head of each .lua file for its contract. Scripts are
// idempotent per attempt, so a request may arrive twice.
type script struct {
	source  string
	sha     any // boxed once: it goes into every argument list
	op      OpKind
	replies grammar

	word any // for what it does in a batch; nil = it is always sent alone
	tail int // how many arguments of its own it takes there
}

func newScript(op OpKind, replies grammar, parts ...string) *script {
	source := strings.Join(parts, "")
	sum := sha1.Sum([]byte(source))
	return &script{source: source, sha: hex.EncodeToString(sum[:]), op: op, replies: replies}
}

func (s *script) batched(word string, tail int) *script {
	s.word, s.tail = word, tail
	return s
}

// args is the argument list of EVALSHA with room for n script arguments.
func (s *script) args(n int, keys ...any) []any {
	a := make([]any, 0, 3+len(keys)+n)
	a = append(a, evalsha, s.sha, len(keys)) // small integers are not allocated
	return append(a, keys...)
}

var evalsha any = "evalsha"

// once is a command that go-redis must not send again by itself: a retry would spend the node timeout
// on a node that is in trouble, and deliver late.
type once struct{ *redis.StringCmd } // of one pointer, so that it is not allocated

func (once) NoRetry() bool { return true }

type onceList struct{ *redis.StringSliceCmd }

func (onceList) NoRetry() bool { return true }

// run evaluates s on client. It may block for as long as the client's own timeouts allow, whatever ctx says.
func (s *script) run(ctx context.Context, client redis.UniversalClient, args []any) (string, error) {
	cmd := redis.NewStringCmd(ctx, args...)
	err := client.Process(ctx, once{cmd})
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		cmd = redis.NewStringCmd(ctx, s.inFull(args)...)
		err = client.Process(ctx, once{cmd})
	}
	if err != nil {
		return "", err
	}
	return cmd.Val(), nil
}

// runBatch is run for the script that answers with a list.
func (s *script) runBatch(ctx context.Context, client redis.UniversalClient, args []any) ([]string, error) {
	cmd := redis.NewStringSliceCmd(ctx, args...)
	err := client.Process(ctx, onceList{cmd})
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		cmd = redis.NewStringSliceCmd(ctx, s.inFull(args)...)
		err = client.Process(ctx, onceList{cmd})
	}
	return cmd.Val(), err
}

// inFull is the argument list for a node that does not know the script yet.
func (s *script) inFull(args []any) []any {
	return append([]any{"eval", s.source}, args[2:]...)
}
