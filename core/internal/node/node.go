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

// reloadEvery is the shortest time between two reloads of a Cluster's topology.
const reloadEvery = 250 * time.Millisecond

// Reasons why a node has no vote: it did not answer in time, or it was not asked.
var (
	ErrNoAnswer = errors.New("no answer within the node timeout")
	ErrNotAsked = errors.New("not asked, because it has not been answering")
)

// A Node is one independent Redis master, with the state that limits the work spent on it while it is in trouble.
type Node struct {
	Index       int
	Addr        string
	Client      redis.UniversalClient
	Cluster     *goredis.Cluster // Client, if it is a Cluster client; else nil
	Connections int              // to one server
	MayRetry    bool             // the client may retry a request on its own

	logCalls   callback.Queue // log lines about the node
	touchCalls callback.Queue // calls of the observer for requests that belong to no operation

	mu       sync.Mutex                 // guards the fields below
	breakers map[*redis.Client]*breaker // by the master of a Cluster's shard; under nil if there is none, or not yet
	routed   bool                       // a request succeeded, so a Cluster client knows a topology
	reloadAt clock.Instant              // when the topology of a Cluster may be reloaded again
	clock    clockFilter
	whereabouts
	fitness
	voting          voting
	countedDoubtful bool // the node is counted in Group.doubtfulNodes
}

func newNode(i int, c redis.UniversalClient) *Node {
	return &Node{
		Index:       i,
		Addr:        goredis.AddrOf(c),
		Client:      c,
		Cluster:     goredis.ClusterOf(c),
		Connections: goredis.Connections(c),
		MayRetry:    goredis.MayRetry(c),
		breakers:    map[*redis.Client]*breaker{},
		fitness:     fitness{unchecked: ErrNoAnswer, checkAt: clock.Never},
		voting:      voting{logged: wire.Granted, proven: true},
	}
}

// logAttrs returns the attributes of a log line that name the node.
func (n *Node) logAttrs() slog.Attr {
	return slog.Group("", slog.Int("node", n.Index), slog.String("addr", n.Addr))
}

// String names the node for a message.
func (n *Node) String() string { return Name(n.Index, n.Addr) }

// begin records that a request is sent to the server with the given name, and returns the breaker that admitted it.
// It fails if the request must not be sent.
//
// A server that fails requests, or has left one unanswered for longer than the timeout, is in trouble. Until it
// answers, it gets one probe per timeout, and the requests that must be sent: the end of an attempt that it may
// have granted.
func (n *Node) begin(now clock.Instant, timeout time.Duration, must bool, name string) (*breaker, error) {
	n.mu.Lock()
	defer n.mu.Unlock()

	// An unfit server may have granted an attempt before it was found unfit.
	if n.fault != nil && !must {
		return nil, n.fault
	}

	b := n.breaker(name)
	if b.isTroubled(now, timeout) {
		n.reloadTopology(now)
		if !must && now < b.probeAt {
			return nil, b.withCause(ErrNotAsked)
		}
		if !must {
			b.probeAt = now.Add(timeout)
		}
	}

	b.begin(now)
	return b, nil
}

// breaker returns the breaker of the server that has a name in Redis. Failures of a shard's old master say nothing
// about the new one, so the breaker of the old one is left behind: a failover costs a few hundred bytes. n.mu must
// be held.
func (n *Node) breaker(name string) *breaker {
	var master *redis.Client

	// Before the topology is known, the lookup of a master might wait for the network.
	if n.Cluster != nil && n.routed {
		master, _ = n.Cluster.MasterFor(context.Background(), name) //nolint:forbidigo // the topology is in memory
	}

	b := n.breakers[master]
	if b == nil {
		b = &breaker{slots: newSlotPool(n.Connections), unansweredSince: clock.Never}
		n.breakers[master] = b
	}
	return b
}

// ReloadIfMoved makes a Cluster client reload its topology, if a subscription failed in a way that may mean that another
// server has taken over.
func (n *Node) ReloadIfMoved(now clock.Instant, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if goredis.Moved(err) {
		n.reloadTopology(now)
	}
}

// reloadTopology makes a Cluster client reload its topology, at most every reloadEvery. Otherwise the client does
// so only once a minute and when it is redirected, and a master that is dead does not redirect. n.mu must be held.
func (n *Node) reloadTopology(now clock.Instant) {
	if n.Cluster == nil || now < n.reloadAt {
		return
	}
	n.reloadAt = now.Add(reloadEvery)
	n.Cluster.Reload()
}

// adjustInFlight adds delta to the number of requests in flight that b admitted. It is 1 for a request that is sent
// again, and -1 for a request whose failure was recorded with another one.
func (n *Node) adjustInFlight(b *breaker, delta int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	b.inFlight += delta
}

// end records the end of a request that b admitted.
func (n *Node) end(b *breaker, now clock.Instant, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	b.end(now, err)

	n.routed = n.routed || err == nil
	if goredis.Moved(err) {
		n.reloadTopology(now)
	}
}

// returnProbe lets the next request pass as a probe. The last one that could have been the probe was not sent, because
// its round had ended: where two of three nodes are not asked, no round waits for the third. If such requests used up
// the probes, a node that is well again would not be asked until probes of two nodes were due at the same time.
func (n *Node) returnProbe(b *breaker) {
	n.mu.Lock()
	defer n.mu.Unlock()
	b.probeAt = 0
}

// noAnswerError returns the error of a request to the server with the given name that was not answered in time.
func (n *Node) noAnswerError(name string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.breaker(name).withCause(ErrNoAnswer)
}

// addClockSample records how far the node's wall clock was ahead of this process's when the answer arrived.
func (n *Node) addClockSample(ahead, latency time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.clock.add(clockSample{ahead + latency/2, latency})
}

// ClockOffset returns how far the node's wall clock is ahead of this process's.
func (n *Node) ClockOffset() (by time.Duration, known bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	best, known := n.clock.best()
	return best.offset, known
}

// Name names a node for a message.
func Name(index int, addr string) string {
	if addr == "" {
		return fmt.Sprintf("node %d", index)
	}
	return fmt.Sprintf("node %d (%s)", index, addr)
}
