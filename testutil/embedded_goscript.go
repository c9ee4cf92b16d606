package testutil

import (
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"

	"github.com/lockkit/lockkit/internal/goscript"
)

func init() {
	goscript.Use = func(node any, find goscript.Finder) {
		n := node.(*Node)
		n.exec.Lock()
		defer n.exec.Unlock()
		n.scripts.find = find
		clear(n.scripts.inGo)
	}
}

// runInGo runs the Go function that stands in for a script, and answers with its reply. It reports whether it has
// answered. A function sees neither refused commands nor the hook of [Node.OnCall], so the script runs in Lua while
// there are any.
func (s *scripts) runInGo(peer *server.Peer, of script, keys, args []string) bool {
	f := s.goScript(of)
	if f == nil || s.node.interferes() {
		return false
	}

	reply, ok := f(goNode{s.node}, keys, args)
	if ok {
		writeReply(peer, reply)
	}
	return ok
}

// goScript returns the Go function that stands in for a script, or nil if there is none.
func (s *scripts) goScript(of script) goscript.Script {
	if s.find == nil {
		return nil
	}

	f, known := s.inGo[of.sha]
	if !known {
		f = s.find(of.source)
		s.inGo[of.sha] = f
	}
	return f
}

// interferes reports whether the commands that scripts call are refused or observed.
func (n *Node) interferes() bool {
	n.mu.Lock()
	defer n.mu.Unlock()

	if n.faults.onCall != nil {
		return true
	}
	for _, refusal := range n.identity.refusals {
		if refusal != "" {
			return true
		}
	}
	return false
}

// writeReply writes the reply of a Go function.
func writeReply(peer *server.Peer, reply any) {
	switch v := reply.(type) {
	case nil:
		peer.WriteNull()
	case int:
		peer.WriteInt(v)
	case string:
		peer.WriteBulk(v)
	case []any:
		peer.WriteLen(len(v))
		for _, e := range v {
			writeReply(peer, e)
		}
	}
}

// goNode is a node as a Go function sees it.
type goNode struct{ *Node }

func (n goNode) Now() time.Time { return time.Now().Add(n.offset) }

func (n goNode) Replication() (history string, replica bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.identity.replid, n.identity.replica
}

func (n goNode) DB() *miniredis.RedisDB { return n.redis.DB(0) }

func (n goNode) Publish(command, channel, text string) {
	n.publish(messageKind(command), channel, text)
}
