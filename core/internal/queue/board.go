package queue

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core/internal/goredis"
	"github.com/lockkit/lockkit/core/internal/node"
)

const (
	// A connection that is silent for so long is closed where nobody waits. Else it is tried, and given up if that is
	// not answered.
	SilentFor = 10 * time.Second
	// After a failure, so long until the next subscription.
	RelistenMin, RelistenMax = 50 * time.Millisecond, time.Second
	// So much of what waits were told that are not known is kept: the answer that makes one of them wait may be on its way.
	lately = 256
)

var (
	errSilent   = errors.New("no answer on the connection of the subscription")
	errNeedless = errors.New("nobody waits")
)

// A Board is the calls of a Locker that wait, and what nodes tell them. It listens to what a node publishes for them on a
// connection of its own, from when the first of them comes until none is left and nothing has been heard for a while, or the
// Locker is closed.
type Board struct {
	g *node.Group

	mu        sync.Mutex
	byName    map[string]*Waiter
	unclaimed []notice
	listening map[source]bool
}

// A source is what a subscription is to.
type source struct {
	n *node.Node
	b *node.Bucket
}

// Init makes it the one of a group.
func (b *Board) Init(g *node.Group) {
	b.g = g
	b.byName = map[string]*Waiter{}
	b.listening = map[source]bool{}
}

// Begin books a wait, and has the nodes listened to. A wait hears what it was told before it was booked.
func (b *Board) Begin(w *Waiter, bucket *node.Bucket) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.byName[w.Name.Name] = w
	b.unclaimed = slices.DeleteFunc(b.unclaimed, func(t notice) bool {
		if t.name != w.Name.Name {
			return false
		}
		w.notify(t)
		return true
	})
	for _, n := range b.g.Nodes {
		s := source{n, bucket}
		if b.listening[s] {
			continue
		}
		b.listening[s] = true
		b.g.Tasks.Go(func() { b.listen(s) })
	}
}

// End has nobody listened to for a wait.
func (b *Board) End(w *Waiter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.byName, w.Name.Name)
}

// Hear takes what a node published: a place, and a name.
func (b *Board) Hear(node int, message string) {
	place, name, _ := strings.Cut(message, " ")
	t := notice{name, node, place == "1"}
	b.mu.Lock()
	defer b.mu.Unlock()
	if w := b.byName[name]; w != nil {
		w.notify(t)
		return
	}
	b.unclaimed = append(b.unclaimed[max(0, len(b.unclaimed)+1-lately):], t)
}

// All has every wait try: nobody knows what they were told while nobody listened.
func (b *Board) All() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, w := range b.byName {
		w.mu.Lock()
		w.now()
		w.mu.Unlock()
	}
}

// listen subscribes, and again after each failure.
func (b *Board) listen(s source) {
	pause := time.Duration(0)
	for {
		began := b.g.Clock.Now()
		err := b.session(s)
		s.n.Follow(b.g.Clock.Now(), err)
		if errors.Is(err, errNeedless) {
			return
		}
		dismissed := b.dismiss(s)
		if dismissed {
			return
		}
		switch {
		case goredis.Denied(err):
			pause = node.RecheckEvery
			b.g.Doubt(s.n)
		case b.g.Clock.Now().Since(began) > RelistenMax:
			pause = RelistenMin
		default:
			pause = min(max(2*pause, RelistenMin), RelistenMax)
		}
		open := b.g.Pause(b.g.Closing, pause, nil)
		if !open {
			return
		}
	}
}

// dismiss lets go of a subscription if nobody waits, and reports whether it did. The next waiter makes another.
func (b *Board) dismiss(s source) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.byName) > 0 {
		return false
	}
	delete(b.listening, s)
	return true
}

// session is one subscription, until it fails, its server takes it away, or the node is found elsewhere.
func (b *Board) session(s source) error {
	ctx, cancel := context.WithCancel(s.n.Found())
	// Whatever the client does to reach the server takes no longer than a node timeout.
	reach, stop := context.WithTimeout(ctx, b.g.Conf.Timeout)
	subscription, err := goredis.Subscribe(reach, s.n.Client, s.b.Channel.Sharded, s.b.Channel.Name)
	stop()
	closed := make(chan struct{})
	context.AfterFunc(ctx, func() { // not before: Close would wait for the connection to be made
		subscription.Close()
		close(closed)
	})
	defer func() {
		cancel()
		<-closed
	}()
	if err != nil {
		return err
	}
	pinged := true // the subscription is to be confirmed
	for {
		confirmed, published, err := subscription.Receive(SilentFor)
		silent := isTimeout(err)
		if silent && pinged {
			return errSilent
		}
		if silent {
			dismissed := b.dismiss(s)
			if dismissed {
				return errNeedless
			}
			err = subscription.Ping()
		}
		if err != nil {
			return err
		}
		pinged = silent
		switch {
		case confirmed:
			b.All()
		case published != nil:
			b.Hear(s.n.Index, published.Payload)
		}
	}
}

func isTimeout(err error) bool {
	var failed net.Error
	return errors.As(err, &failed) && failed.Timeout()
}
