package testutil

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

var nodeCount atomic.Int64

// Node is one embedded Redis master, with switches for the faults a lock has
// to survive. It executes one request at a time, as Redis does; requests that
// wait (for a fault to end, or for a delay) hold up only their own connection.
//
// It serves SUBSCRIBE, SSUBSCRIBE and PUBLISH, of scripts too. Commands that
// block, and subscriptions to patterns, are answered with an error. All methods
// are safe for concurrent use. A switch that has returned is in effect, on
// established connections too: no request executes that it forbids.
type Node struct {
	name  string
	redis *miniredis.Miniredis
	srv   *server.Server
	work  sync.WaitGroup // one worker per connection

	// exec is held while a request executes and while a switch is thrown, so
	// that no request straddles a change. Lock order: exec, redis, mu.
	exec   sync.Mutex
	offset time.Duration // guarded by exec
	lua    *scripts      // used with exec held

	mu        sync.Mutex
	listeners []net.Listener
	conns     map[*conn]struct{}
	clients   []*redis.Client
	calls     map[string]int
	faults    faults
	id        identity
	closed    bool
}

// StartNode starts an empty node without any fault. The caller must Close it.
// Tests rather use [NewNodes].
func StartNode() *Node {
	m := miniredis.NewMiniRedis()
	// Dialing is what starts a miniredis without a listener.
	c, err := m.Dial()
	if err != nil {
		panic(fmt.Sprintf("testutil: miniredis does not start in memory: %v", err))
	}
	_ = c.Close()
	n := &Node{
		name:  fmt.Sprintf("embedded-%d", nodeCount.Add(1)),
		redis: m,
		srv:   m.Server(),
		conns: map[*conn]struct{}{},
		calls: map[string]int{},
		id:    newIdentity(),
	}
	n.lua = newScripts(n)
	m.SetTime(time.Now())
	m.ClockTTL(true)
	n.srv.SetPreHook(n.answerInfo)
	return n
}

// NewNodes starts n nodes and closes them when the test ends.
func NewNodes(tb testing.TB, n int) []*Node {
	tb.Helper()
	nodes := make([]*Node, n)
	for i := range nodes {
		nodes[i] = StartNode()
		tb.Cleanup(nodes[i].Close)
	}
	return nodes
}

// Clients returns one new client per node, in the order of the nodes.
func Clients(nodes []*Node) []redis.UniversalClient {
	clients := make([]redis.UniversalClient, len(nodes))
	for i, n := range nodes {
		clients[i] = n.Client()
	}
	return clients
}

// Name identifies the node within the process, like "embedded-1".
func (n *Node) Name() string { return n.name }

// Client returns a new client of the node with the options go-redis has by
// default, but small buffers, and a single try to dial. The node closes it.
//
// In a bubble, give a client that may have more commands under way than its
// PoolSize (10 per CPU by default) a larger one: go-redis waits for a free
// connection with timers it shares between bubbles, and Go then ends the test
// binary.
func (n *Node) Client() redis.UniversalClient { return n.ClientWith(nil) }

// ClientWith is [Node.Client] with options changed by adjust, which may be nil.
func (n *Node) ClientWith(adjust func(*redis.Options)) *redis.Client {
	opts := &redis.Options{
		Addr:   n.name,
		Dialer: n.Dial,
		// Both would greet every connection with commands miniredis rejects. Without a type of endpoint, go-redis v9.22
		// looks the node's name up in DNS although the mode is off.
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled, EndpointType: maintnotifications.EndpointTypeNone},
		// Tests dial many connections for a few requests each: to clear the buffers of 32 KiB, and of 128 KiB for pipelines,
		// takes longer than the requests. Pipelines get no connections of their own, since of these there would be ten.
		ReadBufferSize:   4096,
		WriteBufferSize:  4096,
		PipelinePoolSize: -1,
		// go-redis dials in the background, and would go on trying after the call has ended: a bubble that ends meanwhile ends
		// the test binary.
		DialerRetries: 1,
	}
	if adjust != nil {
		adjust(opts)
	}
	client := redis.NewClient(opts)
	n.mu.Lock()
	closed := n.closed
	n.clients = append(n.clients, client)
	n.mu.Unlock()
	if closed {
		_ = client.Close()
	}
	return client
}

// Dial opens an in-memory connection; network and addr are ignored, so that it
// fits redis.Options.Dialer. It fails with ECONNREFUSED while the node is down
// or closed, and with the context's error when ctx is done.
func (n *Node) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed || n.faults.down {
		return nil, &net.OpError{Op: "dial", Net: "memory", Addr: nodeAddr(n.name), Err: syscall.ECONNREFUSED}
	}
	c := newConn(n)
	n.conns[c] = struct{}{}
	n.work.Go(c.serve)
	return c, nil
}

// Exec runs one command at once, whatever the faults, and returns its reply:
// string, int, nil, or []any of these. An error reply is an error. It is not
// counted by [Node.Calls] nor seen by [Node.OnRequest].
func (n *Node) Exec(args ...any) (any, error) {
	if len(args) == 0 {
		return nil, errors.New("testutil: Exec needs a command")
	}
	words := make([]string, len(args))
	for i, a := range args {
		if b, ok := a.([]byte); ok {
			a = string(b)
		}
		words[i] = fmt.Sprint(a)
	}
	words[0] = strings.ToUpper(words[0])
	n.exec.Lock()
	defer n.exec.Unlock()
	return n.execLocked(words)
}

func (n *Node) execLocked(words []string) (any, error) {
	n.mu.Lock()
	closed := n.closed
	n.mu.Unlock()
	if closed {
		return nil, fmt.Errorf("testutil: node %s is closed", n.name)
	}
	var out bytes.Buffer
	n.dispatch(server.NewPeer(bufio.NewWriter(&out)), words)
	reply, err := server.ParseReply(bufio.NewReader(&out))
	if s, ok := reply.(server.Simple); ok {
		reply = string(s)
	}
	return reply, err
}

// Keys returns the keys of database 0, sorted.
func (n *Node) Keys() []string {
	reply, _ := n.Exec("KEYS", "*")
	list, _ := reply.([]any)
	keys := make([]string, 0, len(list))
	for _, k := range list {
		keys = append(keys, fmt.Sprint(k))
	}
	slices.Sort(keys)
	return keys
}

// Calls returns how many requests of each command (EVALSHA, EVAL, INFO, ...)
// the node has received from clients, including those it did not execute.
// Commands a script calls are not requests.
func (n *Node) Calls() map[string]int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.calls)
}

// Close closes the node's clients, breaks its connections and waits until
// nothing of it runs. A hook set with [Node.OnRequest] must have returned or
// be about to. Closing again does nothing.
func (n *Node) Close() {
	n.mu.Lock()
	n.closed = true
	clients := n.clients
	n.clients = nil
	for _, l := range n.listeners {
		_ = l.Close()
	}
	n.breakConnsLocked()
	n.mu.Unlock()
	for _, c := range clients {
		_ = c.Close()
	}
	n.work.Wait()
	n.exec.Lock() // a script run by Exec needs miniredis open
	defer n.exec.Unlock()
	n.lua.close()
	n.redis.Close()
}

// dispatch executes one request for peer, at the node's present time. It must
// be called with exec held.
func (n *Node) dispatch(peer *server.Peer, args []string) {
	if unsupported[args[0]] {
		peer.WriteError(fmt.Sprintf("ERR embedded nodes do not serve '%s'", args[0]))
	} else {
		n.redis.SetTime(time.Now().Add(n.offset))
		handled := n.lua.dispatch(peer, args)
		if !handled {
			n.srv.Dispatch(peer, args)
		}
	}
	peer.Flush()
}

// unsupported are the commands whose reply is not over when the command is,
// or that would hold up the whole node.
var unsupported = map[string]bool{
	"BLPOP": true, "BRPOP": true, "BLMOVE": true, "BRPOPLPUSH": true, "BLMPOP": true,
	"BZPOPMIN": true, "BZPOPMAX": true, "BZMPOP": true, "XREAD": true, "XREADGROUP": true,
	"PSUBSCRIBE": true, "PUNSUBSCRIBE": true,
}
