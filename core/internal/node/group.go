// Package node is the nodes, and asking them: who may be asked and who is spared, how requests travel together, and a [Round] of
// one question to all of them, until votes decide it. It knows neither leases nor errors of package core.
//
// A [Group] is the nodes that vote together. A Round asks them, for an [Asker] that hears every reply, also those that come
// when the round is over. [Examine] finds out what is wrong with a server.
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

// A Config is what a Locker says of its nodes.
type Config struct {
	Timeout             time.Duration // of a request, where it has none of its own
	Window, MaxTTL, Lag time.Duration
	Guarded             bool          // with the restart guard
	Looking             bool          // nodes are not touched, and may be unfit
	Pace                time.Duration // of batches; MinPace if that is more
	Prefix              string
	Logger              *slog.Logger
	Observe             func(ctx context.Context, op wire.Op, n *Node, v *quorum.Vote) // hears of each request; nil = nobody does
}

// A Group is the nodes that vote together, and what all who ask them share.
type Group struct {
	Conf  Config
	Nodes []*Node
	Keys  *wire.Keyspace
	Clock clock.Stopwatch
	Head  atomic.Pointer[wire.Head] // with the longest lease in use
	Tasks gate.Gate                 // every goroutine of the Locker, and what is to be sent later: Close waits for them

	Callbacks *callback.Background // calls observer and logger from all that must not wait for them

	Buckets   []*Bucket // of keys
	deadlines *deadlines
	doubtful  atomic.Int32 // nodes of which it is not known whether they vote
	waiters   sync.Pool    // each of one Group, since timers must not leave their synctest bubble

	mu       sync.Mutex
	due      *time.Timer         // when something is to be done about nodes that nobody asks; nil = nobody looks after them
	answered clock.AtomicInstant // when a node last answered, by clock
	Closing  context.Context     // ends with BeginClose
	close    context.CancelFunc
}

// New makes one of the servers behind clients, which it has not talked to yet.
func New(clients []redis.UniversalClient, conf Config) *Group {
	conf.Pace = max(conf.Pace, MinPace)
	g := &Group{Conf: conf, Clock: clock.New(), Keys: KeysOver(clients, &conf), deadlines: newDeadlines(conf.Timeout)}
	g.Callbacks = callback.NewBackground(conf.Logger, &g.Tasks)
	closing, cancel := context.WithCancel(context.Background()) //nolint:forbidigo // ended by BeginClose
	g.Closing = closing
	g.close = cancel
	for i, c := range clients {
		n := newNode(i, goredis.Bounded(c, conf.Timeout))
		n.awaitReturn(g.Closing)
		g.Nodes = append(g.Nodes, n)
	}
	process := rand.Text()[:13] // short enough for a queue to be packed by Redis, which takes up to 64 bytes
	for i := range g.Keys.Buckets() {
		g.Buckets = append(g.Buckets, newBucket(g, i, process))
	}
	g.Head.Store(wire.NewHead(conf.Window, conf.MaxTTL, conf.Lag))
	return g
}

// KeysOver are the keys on nodes behind clients: with a Redis Cluster among them, spread over its shards.
func KeysOver(clients []redis.UniversalClient, conf *Config) *wire.Keyspace {
	if slices.ContainsFunc(clients, func(c redis.UniversalClient) bool { return goredis.ClusterOf(c) != nil }) {
		return wire.NewKeyspace(conf.Prefix, wire.Buckets, conf.Guarded)
	}
	return wire.NewKeyspace(conf.Prefix, 1, conf.Guarded)
}

// Later runs f after a delay; at once when the Locker is being closed, so that Close does not wait for a node that is down. It is
// one of the tasks, and f says when it is done. However many wait for their time, they take no goroutine.
func (g *Group) Later(after time.Duration, f func()) bool {
	if !g.Tasks.Enter() {
		return false
	}
	ctx, cancel := context.WithTimeout(g.Closing, after)
	context.AfterFunc(ctx, func() {
		cancel()
		stall.At(stall.Timer, stall.Anywhere, g)
		f()
	})
	return true
}

// BeginClose has what waits for the network, and what is asked by itself, come to its end.
func (g *Group) BeginClose() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.close()
	if g.due != nil {
		g.due.Stop()
		g.due = nil
	}
}

// IsClosing reports whether BeginClose was called.
func (g *Group) IsClosing() bool { return g.Closing.Err() != nil }

// WaitFor waits for joined, and once stop is closed (nil = at once) until no node has answered for grace.
func (g *Group) WaitFor(joined, stop <-chan struct{}, grace time.Duration) bool {
	if stop != nil {
		select {
		case <-joined:
			return true
		case <-stop:
		}
	}
	began := g.Clock.Now()
	for {
		rest := max(began, g.answered.Load()).Since(g.Clock.Now()) + grace
		if rest <= 0 {
			return false
		}
		select {
		case <-joined:
			return true
		case <-time.After(rest):
		}
	}
}

// Pause waits for d, or until somebody tells; it reports false where ctx has ended, or BeginClose was called.
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
