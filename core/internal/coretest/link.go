// Package coretest is what the tests of core and of its packages share: a link whose requests have the fates that a test gives
// them, and how to take a command apart. Nothing but tests imports it.
package coretest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/wire"
)

// CommandsOnly is what hooks have in common that look at commands alone.
type CommandsOnly struct{}

// DialHook implements redis.Hook.
func (CommandsOnly) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessPipelineHook implements redis.Hook.
func (CommandsOnly) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// A Link carries the requests of one process to one node. Its rule decides the fate of each.
type Link struct {
	CommandsOnly
	mu       sync.Mutex
	rule     func(op wire.Op, q Sent) Fate
	Together func()        // called with each batch; may be nil
	wake     chan struct{} // closed by mend: what is lost fails now
	delay    time.Duration // of each request, beside its fate
}

// LeaveTogether makes each request take a nanosecond to its node, beside what its fate is. In a bubble even a nanosecond passes
// only when every goroutine is at rest. So all requests of a round leave before any of them arrives, even if the operating
// system stops the thread that sends one of them. Without it, nothing orders the first reply before the last request.
func (k *Link) LeaveTogether() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.delay = time.Nanosecond
}

// A Fate is what happens to a request; the zero value passes.
type Fate struct {
	Refuse     bool          // fails at once, not sent
	Lose       bool          // never arrives, never answered
	Delay      time.Duration // arrives later
	Twice      bool          // arrives twice, the second time after delay
	LoseReply  bool
	ReplyDelay time.Duration
	Panic      bool // the hook panics with the answer
}

// with is the fate of two requests that travel together.
func (f Fate) with(g Fate) Fate {
	return Fate{Refuse: f.Refuse || g.Refuse, Lose: f.Lose || g.Lose, Delay: max(f.Delay, g.Delay), Twice: f.Twice || g.Twice,
		LoseReply: f.LoseReply || g.LoseReply, ReplyDelay: max(f.ReplyDelay, g.ReplyDelay), Panic: f.Panic || g.Panic}
}

// What a Link's requests fail with.
var (
	ErrRefused = errors.New("connection refused")
	ErrLost    = errors.New("i/o timeout")
)

// Refusing is what it takes to be refused. In a bubble every other goroutine is at rest before it is over, so that no
// refusal ends an attempt before its other requests have left, whatever else the machine does.
const Refusing = time.Millisecond

// RefusalsHeard waits until all that is refused now has been.
func RefusalsHeard() {
	time.Sleep(2 * Refusing)
	synctest.Wait()
}

// Patience is how long a client waits for an answer that never comes: longer than any node timeout.
const Patience = 6 * time.Second

// Set makes f the fate of requests that run one of scripts, or all when none is named.
func (k *Link) Set(f Fate, ops ...wire.Op) {
	k.Decide(func(op wire.Op, _ Sent) Fate {
		if len(ops) == 0 || slices.Contains(ops, op) {
			return f
		}
		return Fate{}
	})
}

// Next gives the next request that runs s its fate; the others pass.
func (k *Link) Next(f Fate, s wire.Op) { k.Sequence(s, f, Fate{}) }

// Sequence gives the coming requests that run s their fates, one after the other; the last is for all others.
func (k *Link) Sequence(s wire.Op, fates ...Fate) {
	k.Decide(func(got wire.Op, _ Sent) Fate {
		if got != s {
			return Fate{}
		}
		f := fates[0]
		fates = fates[min(1, len(fates)-1):]
		return f
	})
}

// Decide makes rule decide the fate of each request.
func (k *Link) Decide(rule func(wire.Op, Sent) Fate) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.rule = rule
	if k.wake == nil {
		k.wake = make(chan struct{})
	}
}

// Mend lets all requests pass. What is lost fails now.
func (k *Link) Mend() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.rule = nil
	if k.wake != nil {
		close(k.wake)
		k.wake = nil
	}
}

// ProcessHook implements redis.Hook.
func (k *Link) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		f, wake := k.fateOf(cmd.Args())
		time.Sleep(k.onTheWay())
		switch {
		case f.Refuse:
			time.Sleep(Refusing)
			cmd.SetErr(ErrRefused)
			return ErrRefused
		case f.Lose:
			return Unanswered(cmd, wake)
		case f.Twice:
			next(ctx, redis.NewCmd(ctx, cmd.Args()...))
		}
		time.Sleep(f.Delay)
		err := next(ctx, cmd)
		time.Sleep(f.ReplyDelay)
		if f.LoseReply {
			return Unanswered(cmd, wake)
		}
		if f.Panic {
			panic("a hook of the client")
		}
		return err
	}
}

func (k *Link) onTheWay() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.delay
}

// fateOf is what becomes of a command, and what is closed when those that are lost are to fail.
func (k *Link) fateOf(args []any) (f Fate, wake <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.rule == nil {
		return Fate{}, nil
	}
	all := RequestsOf(args)
	for _, q := range all {
		f = f.with(k.rule(q.Op, q))
	}
	if len(all) > 1 && k.Together != nil {
		k.Together()
	}
	return f, k.wake
}

// Unanswered waits for a reply that does not come.
func Unanswered(cmd redis.Cmder, wake <-chan struct{}) error {
	select {
	case <-time.After(Patience):
	case <-wake:
	}
	cmd.SetErr(ErrLost)
	return ErrLost
}
