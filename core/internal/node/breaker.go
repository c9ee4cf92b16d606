package node

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/clock"
	"github.com/lockkit/lockkit/core/internal/goredis"
)

// MaxFailures is how many requests in a row may fail before a node is left alone for a while.
const MaxFailures = 3

// reloadEvery is how often at most a Cluster in trouble is asked for its topology.
const reloadEvery = 250 * time.Millisecond

// A breaker spares requests to a node, or to the shard of a Cluster behind one guard bucket, while it is in
// trouble. The trouble of one shard is none of the others'. A bucket whose shard has another master gets a
// new breaker: what the old master did says nothing about the new one.
type breaker struct {
	master *redis.Client // the shard's, as far as known; nil where the node is no Cluster
	slots  *slots

	inFlight int
	since    clock.Instant // when something was sent first since it last answered; never = nothing was
	failures int           // in a row
	probeAt  clock.Instant // while open: when the next request may pass, as a probe
	cause    error         // why it does not answer: the last error that tells more than that time was up
}

// troubled reports whether requests fail in a row, or one has been unanswered for longer than the timeout.
func (b *breaker) troubled(now clock.Instant, timeout time.Duration) bool {
	return b.failures >= MaxFailures || b.inFlight > 0 && now.Since(b.since) > timeout
}

// leave books the end of a request.
func (b *breaker) leave(err error) {
	b.inFlight--
	switch {
	case goredis.Answered(err):
		b.since, b.failures, b.cause = clock.Never, 0, nil
	case !goredis.Unsent(err):
		b.failures++
		if b.cause == nil || !goredis.TimedOut(err) {
			b.cause = err
		}
	}
}

// because adds to err why there is no answer, where that is known.
func (b *breaker) because(err error) error {
	switch {
	case b.cause == nil:
		return err
	case goredis.TimedOut(b.cause): // which must not be taken for the end of the caller's time
		return fmt.Errorf("%w: %v", err, b.cause) //nolint:errorlint // its text only
	}
	return fmt.Errorf("%w: %w", err, b.cause)
}

// breaker returns the breaker of a guard bucket. Called with the node's lock.
func (n *Node) breaker(bucket int) *breaker {
	bucket %= len(n.breakers)
	var master *redis.Client
	if n.Cluster != nil && n.routed { // before, asking for the master might wait for the network
		master, _ = n.Cluster.MasterForKey(context.Background(), "{"+strconv.Itoa(bucket)+"}") //nolint:forbidigo // the topology is in memory
	}
	b := n.breakers[bucket]
	if b == nil || b.master != master {
		b = &breaker{master: master, slots: n.slots(master), since: clock.Never}
		n.breakers[bucket] = b
	}
	return b
}

// follow has a Cluster client ask for the topology anew. By itself it does so only once a minute and when it
// is redirected, and nobody redirects from a master that is dead. Called with the node's lock.
func (n *Node) follow(now clock.Instant) {
	if n.Cluster == nil || now < n.reloadAt {
		return
	}
	n.reloadAt = now.Add(reloadEvery)
	n.Cluster.ReloadState(context.Background()) //nolint:forbidigo // on a goroutine of the client
}

// A slots bounds the batches of nothing but acquisitions over the connections to one server: they use half of
// them, so that those who ask for keys leave connections for what holders need, which is renewals, releases and
// completions. Over a single connection a renewal waits for one batch at most.
type slots struct {
	mu      sync.Mutex
	free    int
	waiting []*lane
}

func newSlots(connections int) *slots { return &slots{free: max(1, connections/2)} }

// enter takes a slot for a lane. If there is none, the lane is tried again when there may be one. Called with
// the lane's lock.
func (s *slots) enter(l *lane) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.free == 0 {
		if l.inLine != s {
			l.inLine = s
			s.waiting = append(s.waiting, l)
		}
		return false
	}
	s.free--
	return true
}

// exit gives a slot back, and lets the lanes that wait try, the longest first.
func (s *slots) exit() {
	s.mu.Lock()
	s.free++
	for s.free > 0 && len(s.waiting) > 0 {
		first := s.waiting[0]
		s.waiting = s.waiting[1:]
		s.mu.Unlock()
		first.mu.Lock()
		if first.inLine == s {
			first.inLine = nil
		}
		first.next() // it may have no use for the slot any more
		first.mu.Unlock()
		s.mu.Lock()
	}
	s.mu.Unlock()
}

// slots returns what bounds the acquisitions over the connections to one server: to the master of a shard,
// or to the node that has no shards, nil. Called with the node's lock.
func (n *Node) slots(master *redis.Client) *slots {
	for _, b := range n.breakers { // shards have many buckets
		if b != nil && b.master == master {
			return b.slots
		}
	}
	return newSlots(n.Connections)
}
