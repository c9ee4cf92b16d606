// Package node sends requests to the nodes: it decides which nodes may be asked, sends requests to one node
// together, and runs a [Round] of one request to all of them until their votes decide it. It knows neither leases
// nor errors of package core.
//
// A [Group] is the list of nodes that vote together. A Round asks them on behalf of an [Asker], which receives
// every reply, even after the round is over. [Examine] finds out what is wrong with a server.
package node

import (
	"context"
	"crypto/rand"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/clock"
	"github.com/lockkit/lockkit/core/internal/goredis"
	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
	"github.com/lockkit/lockkit/internal/callback"
	"github.com/lockkit/lockkit/internal/gate"
	"github.com/lockkit/lockkit/internal/stall"
)

// A Config holds a Locker's settings for its nodes.
type Config struct {
	Timeout             time.Duration // of a request, unless its round sets another one
	Window, MaxTTL, Lag time.Duration
	Guarded             bool          // with the restart guard
	ReadOnly            bool          // nodes are not touched, and may be unfit
	Pace                time.Duration // of batches; at least MinPace
	Prefix              string
	Logger              *slog.Logger

	// Observe is called for each request. It may be nil.
	Observe func(ctx context.Context, op wire.Op, n *Node, v *quorum.Vote)
}

// A Group is the list of nodes that vote together, with the state that all their users share.
type Group struct {
	Conf  Config
	Nodes []*Node
	Keys  *wire.Keyspace
	Clock clock.Stopwatch
	Head  atomic.Pointer[wire.Preamble] // with the longest max TTL in use
	Tasks gate.Gate                     // all goroutines and delayed requests of the Locker: Close waits for them

	Callbacks *callback.Background // calls observer and logger for code that must not wait for them

	Buckets       []*Bucket // of keys
	deadlines     *deadlines
	doubtfulNodes atomic.Int32 // the number of nodes that may not be voting
	waiters       *sync.Pool   // one for each Group, since timers must not leave their synctest bubble

	// mu guards monitor, updates of Head, and the search for duplicate servers. It is locked before the mutex of a
	// Node.
	mu         sync.Mutex
	monitor    *time.Timer         // runs the background requests; nil before StartMonitor and after BeginClose
	lastAnswer clock.AtomicInstant // when any node last answered
	Closing    context.Context     // ends with BeginClose
	cancel     context.CancelFunc  // ends Closing
}

// New returns a Group of the servers behind clients. It sends no request.
func New(clients []redis.UniversalClient, conf Config) *Group {
	conf.Pace = max(conf.Pace, MinPace)
	g := &Group{
		Conf:      conf,
		Clock:     clock.New(),
		Keys:      KeysOver(clients, &conf),
		deadlines: newDeadlines(conf.Timeout),

		// Go keeps a pool until the second collection. By a pointer, it does not keep the Group with it.
		waiters: &sync.Pool{},
	}

	g.Callbacks = callback.NewBackground(conf.Logger, &g.Tasks)
	closing, cancel := context.WithCancel(context.Background()) //nolint:forbidigo // ended by BeginClose
	g.Closing = closing
	g.cancel = cancel

	for i, c := range clients {
		n := newNode(i, goredis.WithReadTimeout(c, conf.Timeout))
		n.awaitReturn(g.Closing)
		g.Nodes = append(g.Nodes, n)
	}

	process := rand.Text()[:13] // Redis packs a queue only if its members are short, up to 64 bytes
	for i := range g.Keys.Buckets() {
		g.Buckets = append(g.Buckets, newBucket(g, i, process))
	}
	g.Head.Store(wire.NewPreamble(conf.Window, conf.MaxTTL, conf.Lag))
	return g
}

// KeysOver returns the keyspace on nodes behind clients. If one of them is a Redis Cluster, the keys are spread
// over its shards.
func KeysOver(clients []redis.UniversalClient, conf *Config) *wire.Keyspace {
	if slices.ContainsFunc(clients, func(c redis.UniversalClient) bool { return goredis.ClusterOf(c) != nil }) {
		return wire.NewKeyspace(conf.Prefix, wire.Buckets, conf.Guarded)
	}
	return wire.NewKeyspace(conf.Prefix, 1, conf.Guarded)
}

// AfterFunc runs f after a delay, and reports whether it will. If the Locker is being closed, f runs at once, so that
// Close does not wait for a node that is down. f is one of the tasks, and must leave Tasks when it is done. No
// goroutine waits during the delay.
func (g *Group) AfterFunc(after time.Duration, f func()) bool {
	if !g.Tasks.Enter() {
		return false
	}

	// The context ends after the delay, or when g is being closed.
	ctx, cancel := context.WithTimeout(g.Closing, after)
	context.AfterFunc(ctx, func() {
		cancel()
		stall.At(stall.Timer, stall.Anywhere, g)
		f()
	})
	return true
}

// BeginClose cancels waits for the network, and stops background requests.
func (g *Group) BeginClose() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cancel()
	if g.monitor != nil {
		g.monitor.Stop()
		g.monitor = nil
	}
}

// IsClosing reports whether BeginClose was called.
func (g *Group) IsClosing() bool { return g.Closing.Err() != nil }

// WaitFor waits for joined, and reports whether it was closed. Once stop is closed (nil stands for a closed
// channel), it gives up when no node has answered for grace.
func (g *Group) WaitFor(joined, stop <-chan struct{}, grace time.Duration) bool {
	if stop != nil {
		select {
		case <-joined:
			return true
		case <-stop:
		}
	}

	// As long as nodes answer, the requests that joined waits for make progress.
	began := g.Clock.Now()
	for {
		left := max(began, g.lastAnswer.Load()).Since(g.Clock.Now()) + grace
		if left <= 0 {
			return false
		}
		select {
		case <-joined:
			return true
		case <-time.After(left):
		}
	}
}

// Pause waits for d or for a value on told, and reports false if ctx has ended or BeginClose was called.
func (g *Group) Pause(ctx context.Context, d time.Duration, told <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()

	select {
	case <-timer.C:
	case <-told:
	case <-ctx.Done():
	case <-g.Closing.Done():
	}
	return ctx.Err() == nil && !g.IsClosing()
}
