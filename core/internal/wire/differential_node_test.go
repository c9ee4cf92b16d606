package wire

import (
	"context"
	"crypto/sha1"
	"encoding"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/internal/goscript"
	"github.com/lockkit/lockkit/internal/nodemodel"
	"github.com/lockkit/lockkit/testutil"
)

// The nodes that the scripts run on: an embedded one, whose time is that of a bubble, with the scripts or with the model
// in their place; and a real server, whose scripts are told the time.

// A subject is a node that the scripts run on. It is used from one goroutine.
type subject struct {
	kind     string
	run      func(commands ...[]any) []any // each reply, or error
	setTime  func(µs int64, dies map[string]int64)
	promote  func() // to a new replication history
	replica  func(on bool)
	prelude  string // of each script
	byModel  bool   // the node answers by the model
	takeSent func() []nodemodel.Notice

	bonus  int64 // what keys live longer, to outlast the time that the test itself takes; ms
	loaded map[string]string
}

// one runs one command.
func (s *subject) one(args ...any) any { return s.run(args)[0] }

func newEmbeddedSubject(t *testing.T) *subject {
	node := testutil.NewNodes(t, 1)[0]
	s := newSubjectOn(node)
	var sent []nodemodel.Notice
	node.OnCall(func(_ int, args []string) string {
		if args[0] == "PUBLISH" {
			sent = append(sent, nodemodel.Notice{Channel: args[1], Text: args[2]})
		}
		return ""
	})
	s.takeSent = func() []nodemodel.Notice {
		defer func() { sent = nil }()
		return sent
	}
	return s
}

// newModelSubject returns an embedded node that answers by the model, and counts the calls that it answers so.
func newModelSubject(t *testing.T, calls *int) *subject {
	node := testutil.NewNodes(t, 1)[0]
	s := newSubjectOn(node)
	s.kind, s.byModel = "embedded, by the model", true

	var sent []nodemodel.Notice
	goscript.Use(node, func(source string) goscript.Script {
		script := nodemodel.Find(source)
		if script == nil || strings.HasPrefix(source, withoutHistory) {
			return nil
		}
		return func(n goscript.Node, keys, args []string) (any, bool) {
			reply, ok := script(hearing{n, &sent}, keys, args)
			if ok {
				*calls++
			}
			return reply, ok
		}
	})
	s.takeSent = func() []nodemodel.Notice {
		defer func() { sent = nil }()
		return sent
	}
	return s
}

// hearing is a node whose messages are noted.
type hearing struct {
	goscript.Node
	sent *[]nodemodel.Notice
}

func (h hearing) Publish(_, channel, text string) {
	*h.sent = append(*h.sent, nodemodel.Notice{Channel: channel, Text: text})
}

// newSubjectOn returns an embedded node without takeSent.
func newSubjectOn(node *testutil.Node) *subject {
	s := &subject{kind: "embedded", promote: node.Promote, loaded: map[string]string{}}
	s.run = func(commands ...[]any) []any {
		replies := make([]any, len(commands))
		for i, args := range commands {
			v, err := node.Exec(args...)
			replies[i] = asRedisClient(v)
			if err != nil {
				replies[i] = err
			}
		}
		return replies
	}

	offset := int64(0)
	s.setTime = func(µs int64, _ map[string]int64) {
		ahead := µs - time.Now().UnixMicro() - offset
		if ahead >= 0 && offset != 0 {
			time.Sleep(time.Duration(ahead) * time.Microsecond)
			return
		}
		node.StepClock(time.Duration(ahead) * time.Microsecond)
		offset += ahead
	}
	s.replica = node.SetReplica
	return s
}

// asRedisClient returns a reply with the types of go-redis.
func asRedisClient(reply any) any {
	switch v := reply.(type) {
	case int:
		return int64(v)
	case []any:
		for i := range v {
			v[i] = asRedisClient(v[i])
		}
	}
	return reply
}

// On a real server, scripts read the time that the test has set, and leave their messages in a list.
const redisPrelude = `local real = redis
local function told(call)
  return function(c, ...)
    if c == 'TIME' then
      local us = real.call('GET', 'test:clock')
      return {string.sub(us, 1, -7), string.sub(us, -6)}
    end
    if c == 'PUBLISH' then return real.call('RPUSH', 'test:sent', ...) end
    return call(c, ...)
  end
end
local redis = {call = told(real.call), pcall = told(real.pcall)}
`

func newRedisSubject(t *testing.T, client redis.UniversalClient) *subject {
	ctx := context.Background()
	s := &subject{kind: "Redis", prelude: redisPrelude, bonus: 77_777_777, loaded: map[string]string{}}
	s.run = func(commands ...[]any) []any {
		cmds := make([]*redis.Cmd, len(commands))
		_, _ = client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i, args := range commands {
				cmds[i] = p.Do(ctx, args...)
			}
			return nil
		})
		replies := make([]any, len(commands))
		for i, c := range cmds {
			v, err := c.Result()
			replies[i] = v
			if err != nil && !errors.Is(err, redis.Nil) {
				replies[i] = err
			}
		}
		return replies
	}

	// The server's own clock runs on. So keys get their remaining lives anew, and a bonus.
	s.setTime = func(µs int64, dies map[string]int64) {
		commands := [][]any{{"set", "test:clock", µs}}
		for name, at := range dies {
			left := (at - µs + 999) / 1000
			if left <= 0 {
				commands = append(commands, []any{"del", name})
			} else {
				commands = append(commands, []any{"pexpire", name, left + s.bonus})
			}
		}
		s.run(commands...)
	}
	s.promote = func() {
		s.run([]any{"replicaof", "127.0.0.1", "1"}, []any{"replicaof", "no", "one"}) // nobody answers there
	}
	s.replica = func(on bool) {
		if on {
			s.run([]any{"config", "set", "replica-read-only", "no"}, []any{"replicaof", "127.0.0.1", "1"})
		} else {
			s.run([]any{"replicaof", "no", "one"})
		}
	}
	s.takeSent = func() (sent []nodemodel.Notice) {
		replies := s.run([]any{"lrange", "test:sent", 0, -1}, []any{"del", "test:sent"})
		words, _ := replies[0].([]any)
		for i := 0; i+1 < len(words); i += 2 {
			sent = append(sent, nodemodel.Notice{Channel: words[i].(string), Text: words[i+1].(string)})
		}
		return sent
	}
	return s
}

// history returns the replication history, as INFO tells it.
func (s *subject) history() string {
	_, line, _ := strings.Cut(fmt.Sprint(s.one("info", "replication")), "master_replid:")
	history, _, _ := strings.Cut(line, "\r")
	return history
}

const withoutHistory = `local shown = redis
local function without(call) return function(c, ...) if c == 'INFO' then return 'role:master' end return call(c, ...) end end
local redis = {call = without(shown.call), pcall = without(shown.pcall)}
`

// eval runs a command with this source of its script.
func (s *subject) eval(source string, args []any) any {
	sha := s.loaded[source]
	if sha == "" {
		sum := sha1.Sum([]byte(source))
		sha = hex.EncodeToString(sum[:])
		s.loaded[source] = sha
	}

	plain := []any{"evalsha", sha}
	for _, a := range args {
		if b, ok := a.(encoding.BinaryMarshaler); ok {
			text, _ := b.MarshalBinary()
			a = text
		}
		plain = append(plain, a)
	}
	reply := s.one(plain...)
	if err, failed := reply.(error); failed && strings.HasPrefix(err.Error(), "NOSCRIPT") {
		reply = s.one(append([]any{"eval", source}, plain[2:]...)...)
	}
	return reply
}
