package redisfence

import (
	"context"
	_ "embed" // the script
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/fence/internal/holder"
	"github.com/lockkit/lockkit/core/semaphore"
)

//go:embed script.lua
var checked string

// A Script is a script in Lua that Redis runs unless the fencing token of the caller is stale. It is safe for
// concurrent use.
type Script struct {
	script *redis.Script
}

// NewScript returns a Script with the given body. The body finds its keys and arguments in KEYS and ARGV, as any script of
// Redis does, and its result is the result of Run. It must use no other keys. Redis keeps each body that it has run until it
// restarts, so pass values as arguments, and make a Script once.
func NewScript(body string) *Script {
	return &Script{redis.NewScript(strings.Replace(checked, "--BODY", body, 1))}
}

// Run runs the script under the innermost lease of ctx, and returns its result as a command of go-redis does. Keys are
// one or more, with the same hash tag (see the package document).
//
// The error of the command is a *core.OpError that matches fence.ErrStale and core.ErrLost, and names the greater
// token; or it matches fence.ErrTooOld; or core.ErrInvalid, if ctx has no lease, the keys are wrong or Redis evicts
// keys. With these errors, nothing was written. It matches redis.Nil if the script has run and returned nothing. Any
// other error comes from Redis or from the script, and it is unknown whether the script has run.
func (s *Script) Run(ctx context.Context, client redis.UniversalClient, keys []string, args ...any) *redis.Cmd {
	innermost, err := holder.Innermost(ctx)
	if err != nil {
		return failed(ctx, err)
	}
	return s.run(ctx, client, innermost, keys, args)
}

// RunLease runs the script like Run, under a lease that is not the innermost one of ctx.
func (s *Script) RunLease(
	ctx context.Context, client redis.UniversalClient, lease *core.Lease, keys []string, args ...any,
) *redis.Cmd {
	return s.run(ctx, client, holder.OfLease(lease), keys, args)
}

// RunPermit runs the script like Run, under a permit of a semaphore. Like fence.Store.CheckPermit, it orders the writes of
// one slot, and slot 0 is the key itself.
func (s *Script) RunPermit(
	ctx context.Context, client redis.UniversalClient, permit *semaphore.Permit, keys []string, args ...any,
) *redis.Cmd {
	return s.run(ctx, client, holder.OfPermit(permit), keys, args)
}

// maxToken is the greatest token that the numbers of Lua can compare. Tokens reach it in the year 2255.
const maxToken = 1 << 53

// run runs the script for a holder.
func (s *Script) run(
	ctx context.Context, client redis.UniversalClient, h holder.Holder, keys []string, args []any,
) *redis.Cmd {
	tokenKey, err := s.checkCall(ctx, client, h, keys)
	if err != nil {
		return failed(ctx, err)
	}

	// The script takes its own key and arguments first.
	allKeys := append([]string{tokenKey}, keys...)
	allArgs := append([]any{
		strconv.FormatUint(h.Token, 10),
		holder.MaxSilence.Microseconds(),
		holder.CleanAfter.Milliseconds(),
	}, args...)

	reply, err := s.script.Run(ctx, client, allKeys, allArgs...).Slice()
	if err != nil {
		return failed(ctx, holder.Explain(ctx, fmt.Sprintf("check and write under %q", h.Key), err, ""))
	}

	result, err := read(reply, h, tokenKey)
	if err != nil {
		return failed(ctx, err)
	}

	cmd := redis.NewCmd(ctx)
	cmd.SetVal(result)
	return cmd
}

// checkCall returns the key of the token, or an error if the script cannot run.
func (s *Script) checkCall(
	ctx context.Context, client redis.UniversalClient, h holder.Holder, keys []string,
) (tokenKey string, err error) {
	switch {
	case s == nil || s.script == nil:
		return "", holder.Invalid("the Script was not made by NewScript")
	case ctx == nil:
		return "", holder.ErrNoContext
	case client == nil:
		return "", holder.Invalid("the client is nil")
	case len(keys) == 0:
		return "", holder.Invalid("there are no keys: the token is kept beside the keys that it protects")
	}

	if err := h.Check(); err != nil {
		return "", err
	}

	if h.Token > maxToken {
		return "", holder.Invalid("token %d is greater than 2^53, which scripts cannot compare", h.Token)
	}
	return keyOfToken(h, keys)
}

// keyOfToken returns the key of the holder's token, in the slot of all keys. There is one for each hash tag, and not for
// each set of keys, so all writes to a key meet the same token.
func keyOfToken(h holder.Holder, keys []string) (string, error) {
	tag := hashTag(keys[0])
	for _, key := range keys[1:] {
		if hashTag(key) != tag {
			return "", holder.Invalid("the keys %q and %q have different hash tags, so they may have different tokens: "+
				"give them the same one, such as {account:42}", keys[0], key)
		}
	}

	// A key without a tag is its own tag, unless it has braces that would end the tag earlier.
	tokenKey := "lockkit-fence:{" + tag + "}:" + hex.EncodeToString(h.ID())
	if hashTag(tokenKey) != tag {
		return "", holder.Invalid("no other key can be in the slot of %q: "+
			"give it a hash tag, such as {account:42}", keys[0])
	}
	return tokenKey, nil
}

// hashTag returns the part of a key that decides on its slot in a Redis Cluster.
func hashTag(key string) string {
	_, afterBrace, isOpened := strings.Cut(key, "{")
	tag, _, isClosed := strings.Cut(afterBrace, "}")

	hasTag := isOpened && isClosed && tag != ""
	if !hasTag {
		return key
	}
	return tag
}

// read returns the result of the body, or the refusal of the script.
func read(reply []any, h holder.Holder, tokenKey string) (result any, err error) {
	if len(reply) == 0 {
		return nil, errReply
	}

	var detail any
	if len(reply) > 1 {
		detail = reply[1]
	}

	switch reply[0] {
	case "written":
		return resultOf(detail)
	case "stale":
		text, _ := detail.(string)
		seen, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, errReply
		}
		return nil, h.Stale(seen)
	case "old":
		return nil, h.TooOld()
	case "evicts":
		return nil, holder.Invalid("Redis may have evicted the token of %q: "+
			"its maxmemory-policy is %v: set it to noeviction", h.Key, detail)
	case "foreign":
		return nil, holder.Invalid("the key %q, which is for a fencing token, has another value", tokenKey)
	}
	return nil, errReply
}

var errReply = errors.New("fence: malformed answer of the script: a proxy may have changed it")

// resultOf returns the result of the body, as a command of go-redis does: nil is an error, and so is an error.
func resultOf(detail any) (any, error) {
	if detail == nil {
		return nil, redis.Nil
	}
	if err, isErr := detail.(error); isErr {
		return nil, err
	}
	return detail, nil
}

// failed returns a command that has failed.
func failed(ctx context.Context, err error) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	cmd.SetErr(err)
	return cmd
}
