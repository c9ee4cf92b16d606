package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/clock"
	"github.com/lockkit/lockkit/core/internal/goredis"
	"github.com/lockkit/lockkit/core/internal/wire"
	"github.com/lockkit/lockkit/internal/callback"
)

// reloadEvery is how often at most a Cluster in trouble is asked for its topology.
const reloadEvery = 250 * time.Millisecond

// Why a node has no vote: it was asked and did not answer in time, or was left alone.
var (
	ErrNoAnswer = errors.New("no answer within the node timeout")
	ErrNotAsked = errors.New("not asked, because it has not been answering")
)

// A Node is one independent Redis master, with what is needed not to waste work on it while it is in trouble.
type Node struct {
	Index       int
	Addr        string
	Client      redis.UniversalClient
	Cluster     *goredis.Cluster // the client, if it is one
	Connections int              // to one server
	Repeats     bool             // the client may send a request again by itself

	lines   callback.Queue // of the log, about the node
	touches callback.Queue // what the observer hears of requests that belong to no operation

	mu       sync.Mutex
	breakers map[*redis.Client]*breaker // by the master of a Cluster's shard, as far as known; else one, by nil
	routed   bool                       // it has answered, so a Cluster client knows a topology
	reloadAt clock.Instant              // when a Cluster may be asked for it again
	clock    clockFilter
	whereabouts

	fitness
	voting voting

	doubtful bool // as counted by the group
}

func newNode(i int, c redis.UniversalClient) *Node {
	return &Node{Index: i, Addr: goredis.AddrOf(c), Client: c, Cluster: goredis.ClusterOf(c), Connections: goredis.Connections(c),
		Repeats: goredis.Repeats(c), breakers: map[*redis.Client]*breaker{},
		fitness: fitness{unsure: ErrNoAnswer, checkAt: clock.Never}, voting: voting{now: wire.Granted, proven: true}}
}

// attrs names the node in a log line.
func (n *Node) attrs() slog.Attr {
	return slog.Group("", slog.Int("node", n.Index), slog.String("addr", n.Addr))
}

// String names the node for a message.
func (n *Node) String() string { return Name(n.Index, n.Addr) }

// admit reports whether a request may be sent now to the server that has a name, and books it. A server that fails
// requests, or has left one unanswered for longer than the timeout, gets one probe per timeout until it
// answers; and what must be sent in any case: the end of an attempt that it may have granted.
func (n *Node) admit(now clock.Instant, timeout time.Duration, must bool, name string) (*breaker, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.fault != nil && !must { // it may have granted something before it was found out
		return nil, n.fault
	}
	b := n.breaker(name)
	if b.troubled(now, timeout) {
		n.follow(now)
		if !must && now < b.probeAt {
			return nil, b.because(ErrNotAsked)
		}
		if !must {
			b.probeAt = now.Add(timeout)
		}
	}
	b.enter(now)
	return b, nil
}

// breaker returns that of the server that has a name in Redis. What an old master of a shard did says nothing about the new one,
// and its breaker is left behind: a failover costs a few hundred bytes.
// Called with the node's lock.
func (n *Node) breaker(name string) *breaker {
	var master *redis.Client
	if n.Cluster != nil && n.routed { // before, asking for the master might wait for the network
		master, _ = n.Cluster.MasterFor(context.Background(), name) //nolint:forbidigo // the topology is in memory
	}
	b := n.breakers[master]
	if b == nil {
		b = &breaker{slots: newSlots(n.Connections), since: clock.Never}
		n.breakers[master] = b
	}
	return b
}

// Follow has a Cluster client ask for the topology anew if a subscription failed in a way that may mean that another server
// has taken over.
func (n *Node) Follow(now clock.Instant, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if goredis.Moved(err) {
		n.follow(now)
	}
}

// follow has a Cluster client ask for the topology anew. By itself it does so only once a minute and when it
// is redirected, and nobody redirects from a master that is dead. Called with the node's lock.
func (n *Node) follow(now clock.Instant) {
	if n.Cluster == nil || now < n.reloadAt {
		return
	}
	n.reloadAt = now.Add(reloadEvery)
	n.Cluster.Reload()
}

// count books that so many requests more are under way that b admitted: one is sent again, or fails together with another.
func (n *Node) count(b *breaker, more int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	b.inFlight += more
}

// leave books the end of a request that b admitted.
func (n *Node) leave(b *breaker, now clock.Instant, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	b.leave(err)
	n.routed = n.routed || err == nil
	if goredis.Moved(err) {
		n.follow(now)
	}
}

// noAnswer is the error of a request to the server that has a name, which was not answered in time.
func (n *Node) noAnswer(name string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.breaker(name).because(ErrNoAnswer)
}

// HeardClock books by how much the node's wall clock was ahead when the answer came.
func (n *Node) HeardClock(ahead, latency time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.clock.add(clockSample{ahead + latency/2, latency})
}

// Ahead is by how much the node's wall clock is ahead of this process's.
func (n *Node) Ahead() (by time.Duration, known bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	best, known := n.clock.best()
	return best.ahead, known
}

// Name names a node for a message.
func Name(index int, addr string) string {
	if addr == "" {
		return fmt.Sprintf("node %d", index)
	}
	return fmt.Sprintf("node %d (%s)", index, addr)
}
