package wire

import (
	"strings"

	"github.com/lockkit/lockkit/internal/faults"
)

// Answers holds the answers of a node to the requests of a command, in their order.
type Answers struct {
	memory string
	clock  int64 // the answer to all requests that are not in others: the node's clock in ms, or 1 if it was not read
	others []any // number and text of each answer that is not the clock, in their order
	number int64
}

// Answers splits the reply to a command into the answers to its requests.
func (c Call) Answers(reply any) (Answers, error) {
	switch reply := reply.(type) {
	case int64:
		return Answers{memory: c.memory, clock: reply}, nil
	case string:
		// The answer to a request that has its own script.
		return Answers{memory: c.memory, others: []any{int64(1), reply}}, nil
	case []any:
		if len(reply)%2 == 0 {
			return Answers{}, ErrBadReply
		}

		plain, ok := reply[0].(int64)
		if ok {
			return Answers{memory: c.memory, clock: plain, others: reply[1:]}, nil
		}
	}
	return Answers{}, ErrBadReply
}

// Next returns the answer to the next request of the command, which is r.
func (a *Answers) Next(r Request) (Reply, error) {
	a.number++
	if len(a.others) == 0 || a.others[0] != any(a.number) {
		return r.decodePlain(a.clock, a.memory)
	}

	text, _ := a.others[1].(string) // empty if it is not a string, so that Decode fails
	a.others = a.others[2:]

	if reason, failed := strings.CutPrefix(text, "-"); failed {
		return Reply{}, replyError(faults.Clip(reason))
	}
	return r.Decode(text)
}

// decodePlain decodes the short reply, a clock alone: the request was granted.
func (r Request) decodePlain(clock int64, memory string) (Reply, error) {
	if r.op == OpRelease && clock > 0 {
		return Reply{Verdict: Granted}, nil
	}

	possible := r.kind == kindPlainAcquire || r.kind == kindPlainRenew
	isClock := 1 < clock && clock <= maxNumber
	if !possible || !isClock {
		return Reply{}, ErrBadReply
	}

	v := Reply{
		Verdict: Granted,
		Clock:   nodeMillis(clock),
		Expiry:  nodeMillis(clock + r.lease.ms),
		Memory:  memory,
	}
	if r.kind == kindPlainAcquire {
		// A plain acquisition is granted the token that it proposed, the first number of its payload.
		own := unpacker{rest: string(r.payload[:8])}
		v.Token = own.number()
	}
	return v, nil
}

// A replyError is the error with which Redis answered one request of a command.
type replyError string

func (e replyError) Error() string {
	return string(e)
}

// RedisError marks it as a [redis.Error].
func (replyError) RedisError() {}
