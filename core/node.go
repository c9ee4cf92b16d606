package core

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// maxInFlight bounds the requests under way to one node, abandoned ones included; those that must be sent
// may be mustFactor times as many.
const (
	maxInFlight = 4096
	mustFactor  = 8
)

// maxFailures is how many requests in a row may fail before a node is left alone for a while.
const maxFailures = 3

// A node is one independent Redis master, with what is needed not to waste work on it while it is in trouble.
type node struct {
	index  int
	addr   string
	client redis.UniversalClient
	// memories is what the node remembers, as last heard: by guard bucket, nil = not heard yet.
	memories []atomic.Pointer[string]

	mu       sync.Mutex
	inFlight int
	waiting  bool          // something was sent since the node last answered,
	since    time.Duration // first at this time
	failures int           // in a row
	probeAt  time.Duration // with the circuit open: when the next request may pass, as a probe
	hasClock bool          // it has replied, and then
	clock    time.Duration // its wall clock was ahead of this process's by so much
	checked  bool          // the start-up checks have passed
	runID    string
	fault    error   // the start-up checks have failed: the node must not take part
	trouble  Verdict // why the node cannot vote, as last logged; Granted = it can
}

// String names the node for a message.
func (n *node) String() string { return nodeName(n.index, n.addr) }

func nodeName(index int, addr string) string {
	if addr == "" {
		return fmt.Sprintf("node %d", index)
	}
	return fmt.Sprintf("node %d (%s)", index, addr)
}

// admit says whether a request may be sent now, and books it. A node that fails requests, or has left one
// unanswered for longer than the timeout, gets one probe per timeout until it answers; and what must be sent
// in any case: the end of an attempt that the node may have granted.
func (n *node) admit(now, timeout time.Duration, must bool) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	troubled := n.failures >= maxFailures || n.waiting && n.inFlight > 0 && now-n.since > timeout
	limit := maxInFlight
	if must {
		limit *= mustFactor
	}
	switch {
	case n.fault != nil && !must: // it may have granted something before it was found out
		return n.fault
	case n.inFlight >= limit:
		return errOverloaded
	case troubled && !must:
		if now < n.probeAt {
			return errCircuitOpen
		}
		n.probeAt = now + timeout
	}
	if !n.waiting || n.inFlight == 0 {
		n.waiting, n.since = true, now
	}
	n.inFlight++
	return nil
}

// leave books the end of a request. An error that Redis replied is an answer.
func (n *node) leave(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.inFlight--
	if answered(err) {
		n.waiting, n.failures = false, 0
	} else {
		n.failures++
	}
}

// heardMemory notes what the node remembers.
func (n *node) heardMemory(bucket int, memory string) {
	if memory != "" && memory != n.memory(bucket) {
		heard := memory // its address escapes; that of the parameter would at each call
		n.memories[bucket].Store(&heard)
	}
}

// memory is what the node was last heard to remember.
func (n *node) memory(bucket int) string {
	if m := n.memories[bucket].Load(); m != nil {
		return *m
	}
	return noMemory
}

// heardClock books by how much the node's wall clock was ahead when it replied.
func (n *node) heardClock(ahead time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.clock, n.hasClock = ahead, true
}

// ClockOffset returns by how much the wall clocks of the nodes are ahead of this process's: the median of
// what each node's last reply showed, request delay included. It is false before any node has replied.
func (l *Locker) ClockOffset() (time.Duration, bool) {
	var ahead []time.Duration
	for _, n := range l.e.nodes {
		n.mu.Lock()
		if n.hasClock {
			ahead = append(ahead, n.clock)
		}
		n.mu.Unlock()
	}
	if len(ahead) == 0 {
		return 0, false
	}
	slices.Sort(ahead)
	return ahead[len(ahead)/2], true
}

func answered(err error) bool {
	if err == nil {
		return true
	}
	var reply redis.Error
	return errors.As(err, &reply)
}

// call evaluates s on the node. It returns when the client does, which may be long after the timeout.
func (n *node) call(ctx context.Context, s *script, args []any) vote {
	reply, err := s.run(ctx, n.client, args)
	if err != nil {
		return vote{verdict: Failed, err: err}
	}
	return s.parse(reply)
}

// A nodeContext carries the values of the caller's context, for the hooks of the client, and the deadline of
// the round, for clients that heed it. It is never cancelled: a request whose fate is unknown costs more
// than one that is answered late.
type nodeContext struct {
	values   context.Context
	deadline time.Time
}

func (c *nodeContext) Deadline() (time.Time, bool) { return c.deadline, true }
func (c *nodeContext) Done() <-chan struct{}       { return nil }
func (c *nodeContext) Err() error                  { return nil }
func (c *nodeContext) Value(key any) any {
	if c.values == nil {
		return nil
	}
	return c.values.Value(key)
}

// addrOf names a client for messages; empty where it does not tell.
func addrOf(c redis.UniversalClient) string {
	switch c := c.(type) {
	case *redis.Client:
		return c.Options().Addr
	case *redis.ClusterClient:
		return fmt.Sprintf("cluster %v", c.Options().Addrs)
	}
	return ""
}
