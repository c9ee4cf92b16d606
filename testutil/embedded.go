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

// nodeCount numbers the nodes of the process, for their names.
var nodeCount atomic.Int64

// Node is one embedded Redis master, with switches for the faults that a lock
// must survive. It executes one request at a time, as Redis does. A request
// that waits (for a fault to end, or for a delay) holds up only its own
// connection.
//
// It serves SUBSCRIBE, SSUBSCRIBE and PUBLISH, also PUBLISH from scripts.
// Commands that block, and subscriptions to patterns, are answered with an
// error. All methods are safe for concurrent use. A switch is in effect when
// its method returns, on established connections too: from then on, no request
// executes that the switch forbids.
type Node struct {
	name    string
	redis   *miniredis.Miniredis
	srv     *server.Server
	workers sync.WaitGroup // one per connection, and one per listener

	// exec is held while a request executes and while a switch changes, so that no request executes half before and
	// half after a change. If several locks are held, they are taken in the order exec, the lock of redis, mu.
	exec    sync.Mutex
	offset  time.Duration // how far the node's clock is ahead; guarded by exec
	scripts *scripts      // guarded by exec

	// mu guards the fields below, and the connections' fields.
	mu        sync.Mutex
	listeners []net.Listener
	conns     map[*conn]struct{}
	clients   []nodeClient
	calls     map[string]int // the number of requests received, by command
	faults    faults
	identity  identity
	closed    bool
}

// StartNode starts an empty node without any fault. The caller must Close it.
// Tests should use [NewNodes].
func StartNode() *Node {
	m := miniredis.NewMiniRedis()

	// The first Dial starts a miniredis that has no listener.
	c, err := m.Dial()
	if err != nil {
		panic(fmt.Sprintf("testutil: miniredis does not start in memory: %v", err))
	}
	_ = c.Close()

	n := &Node{
		name:     fmt.Sprintf("embedded-%d", nodeCount.Add(1)),
		redis:    m,
		srv:      m.Server(),
		conns:    map[*conn]struct{}{},
		calls:    map[string]int{},
		identity: newIdentity(),
	}

	n.scripts = newScripts(n)

	m.SetTime(time.Now())
	m.ClockTTL(true)
	n.srv.SetPreHook(n.preHook)
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

// Client returns a new client of the node. Its options are the defaults of
// go-redis, except for small buffers and a single attempt to dial. The node
// closes it.
//
// In a bubble, if a client may have more commands in progress than its PoolSize
// (10 per CPU by default), give it a larger PoolSize: go-redis waits for a free
// connection with timers that it shares between bubbles, and Go then ends the
// test binary.
func (n *Node) Client() redis.UniversalClient { return n.ClientWith(nil) }

// ClientWith is [Node.Client] with options changed by adjust, which may be nil.
func (n *Node) ClientWith(adjust func(*redis.Options)) *redis.Client {
	opts := &redis.Options{
		Addr:   n.name,
		Dialer: n.Dial,

		// By default both would greet every connection with commands that miniredis rejects. Without an EndpointType,
		// go-redis v9.22 looks up the node's name in DNS although the mode is "disabled".
		DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{
			Mode:         maintnotifications.ModeDisabled,
			EndpointType: maintnotifications.EndpointTypeNone,
		},

		// Tests dial many connections for a few requests each, and clearing the default buffers (32 KiB, and 128 KiB
		// for pipelines) takes longer than the requests. Pipelines share the pool, because their own would have ten
		// connections.
		ReadBufferSize:   1024,
		WriteBufferSize:  1024,
		PipelinePoolSize: -1,

		// go-redis dials in the background, and would retry after the call has ended. A bubble that ends before the
		// last retry ends the test binary.
		DialerRetries: 1,
	}
	if adjust != nil {
		adjust(opts)
	}

	d := new(dials)
	opts.Dialer = d.over(opts.Dialer)
	client := nodeClient{redis.NewClient(opts), d}

	n.mu.Lock()
	closed := n.closed
	n.clients = append(n.clients, client)
	n.mu.Unlock()

	if closed {
		client.close()
	}
	return client.Client
}

// Dial opens an in-memory connection. It has the signature of
// redis.Options.Dialer, but ignores network and addr. It fails with
// ECONNREFUSED while the node is down or closed, and with the context's error
// if ctx is done.
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
	n.workers.Go(c.serve)
	return c, nil
}

// Exec runs one command at once, regardless of faults, and returns its reply:
// string, int, nil, or []any of these. An error reply is returned as an error.
// [Node.Calls] does not count the command, and the hook of [Node.OnRequest]
// does not see it.
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

// execLocked runs a command, whose name is in upper case. n.exec must be held, and n.mu must not.
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

// Calls returns the number of requests that the node has received from clients,
// by command (EVALSHA, EVAL, INFO, ...), including those that it did not
// execute. Commands called by a script are not requests.
func (n *Node) Calls() map[string]int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.calls)
}

// Close closes the node's clients, breaks its connections and waits until its
// goroutines have ended. It waits for a running hook of [Node.OnRequest], so
// the hook must return. Further calls do nothing.
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

	// Closing a client closes its connections, which takes n.mu.
	for _, c := range clients {
		c.close()
	}

	n.workers.Wait()

	n.exec.Lock() // a script that Exec runs needs miniredis open
	defer n.exec.Unlock()
	n.scripts.close()
	n.redis.Close()
}

// dispatch executes one request for peer, at the node's present time. n.exec must be held.
func (n *Node) dispatch(peer *server.Peer, args []string) {
	if isUnsupported[args[0]] {
		peer.WriteError(fmt.Sprintf("ERR embedded nodes do not serve '%s'", args[0]))
	} else {
		n.redis.SetTime(time.Now().Add(n.offset))
		handled := n.scripts.dispatch(peer, args)
		if !handled {
			n.srv.Dispatch(peer, args)
		}
	}
	peer.Flush()
}

// isUnsupported has the commands that would hold up the whole node, or whose replies go on after the command has
// returned.
var isUnsupported = map[string]bool{
	"BLPOP": true, "BRPOP": true, "BLMOVE": true, "BRPOPLPUSH": true, "BLMPOP": true,
	"BZPOPMIN": true, "BZPOPMAX": true, "BZMPOP": true, "XREAD": true, "XREADGROUP": true,
	"PSUBSCRIBE": true, "PUNSUBSCRIBE": true,
}
