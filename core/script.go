package core

import (
	"context"
	"crypto/sha1" // what EVALSHA names scripts by; nothing depends on its strength
	_ "embed"
	"encoding/hex"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed lua/prelude.lua
	prelude string
	//go:embed lua/acquire.lua
	acquireLua string
	//go:embed lua/renew.lua
	renewLua string
	//go:embed lua/release.lua
	releaseLua string
	//go:embed lua/complete.lua
	completeLua string
	//go:embed lua/provision.lua
	provisionLua string

	acquireScript   = newScript(OpAcquire, prelude+acquireLua, acquireReplies)
	renewScript     = newScript(OpRenew, prelude+renewLua, renewReplies)
	releaseScript   = newScript(OpRelease, releaseLua, releaseReplies)
	completeScript  = newScript(OpComplete, prelude+completeLua, completeReplies)
	provisionScript = newScript(opProvision, provisionLua, provisionReplies)
)

// A script runs atomically on one node; see the head of each .lua file for its contract. Scripts are
// idempotent per attempt, so a request may arrive twice.
type script struct {
	source  string
	sha     any // boxed once: it goes into every argument list
	op      OpKind
	replies grammar
}

func newScript(op OpKind, source string, replies grammar) *script {
	sum := sha1.Sum([]byte(source))
	return &script{source: source, sha: hex.EncodeToString(sum[:]), op: op, replies: replies}
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

// run evaluates s on client. It may block for as long as the client's own timeouts allow, whatever ctx says.
func (s *script) run(ctx context.Context, client redis.UniversalClient, args []any) (string, error) {
	cmd := redis.NewStringCmd(ctx, args...)
	err := client.Process(ctx, once{cmd})
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		full := append([]any{"eval", s.source}, args[2:]...)
		cmd = redis.NewStringCmd(ctx, full...)
		err = client.Process(ctx, once{cmd})
	}
	if err != nil {
		return "", err
	}
	return cmd.Val(), nil
}
