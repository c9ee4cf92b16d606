// Package coretest has helpers that the tests of core and of its packages share. A [Link] loses, delays or refuses
// requests as a test decides. [RequestsOf] parses a command. Only tests import the package.
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

// CommandsOnly implements the methods of redis.Hook that a hook for single commands does not need.
type CommandsOnly struct{}

// DialHook implements redis.Hook.
func (CommandsOnly) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessPipelineHook implements redis.Hook.
func (CommandsOnly) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// A Link is a hook that carries the requests of one process to one node. Its rule decides the fate of each request.
// The mutex guards rule, wake and delay.
type Link struct {
	CommandsOnly
	mu       sync.Mutex
	rule     func(op wire.Op, q Sent) Fate // nil if all requests succeed
	Together func()                        // called for each batch of several requests; may be nil
	wake     chan struct{}                 // closed by Mend, so that lost requests fail at once
	delay    time.Duration                 // of each request, in addition to its fate
}

// LeaveTogether makes each request take a nanosecond to its node, in addition to its fate. In a bubble even a
// nanosecond passes only when every goroutine is blocked. So all requests of a round leave before any of them
// arrives, even if the operating system stops the thread that sends one of them. Otherwise the first reply could come
// before the last request leaves.
func (k *Link) LeaveTogether() {
	k.mu.Lock()
	defer k.mu.Unlock()

	k.delay = time.Nanosecond
}

// A Fate decides how a request fails. With the zero value it succeeds.
type Fate struct {
	Refuse     bool          // it is not sent, and fails after Refusing
	Lose       bool          // it never arrives, and is never answered
	Delay      time.Duration // it arrives later
	Twice      bool          // it arrives twice, the second time after Delay
	LoseReply  bool          // it arrives, and is never answered
	ReplyDelay time.Duration // its reply comes later
	Panic      bool          // the hook panics when the reply comes
}

// with returns the fate of a command with two requests of these fates.
func (f Fate) with(g Fate) Fate {
	return Fate{
		Refuse:     f.Refuse || g.Refuse,
		Lose:       f.Lose || g.Lose,
		Delay:      max(f.Delay, g.Delay),
		Twice:      f.Twice || g.Twice,
		LoseReply:  f.LoseReply || g.LoseReply,
		ReplyDelay: max(f.ReplyDelay, g.ReplyDelay),
		Panic:      f.Panic || g.Panic,
	}
}

// The errors of requests that a Link refuses or loses.
var (
	ErrRefused = errors.New("connection refused")
	ErrLost    = errors.New("i/o timeout")
)

// Refusing is the time until a refused request fails. In a bubble every other goroutine is blocked before it ends. So
// no refusal ends an attempt before its other requests have left, however busy the machine is.
const Refusing = time.Millisecond

// RefusalsHeard waits until all requests that are being refused have failed.
func RefusalsHeard() {
	time.Sleep(2 * Refusing)
	synctest.Wait()
}

// Patience is the time for which a client waits for a reply that never comes. It is longer than any node timeout.
const Patience = 6 * time.Second

// Set sets the fate of all requests with one of the operations, or of all requests if ops is empty.
func (k *Link) Set(f Fate, ops ...wire.Op) {
	k.Decide(func(op wire.Op, _ Sent) Fate {
		if len(ops) == 0 || slices.Contains(ops, op) {
			return f
		}
		return Fate{}
	})
}

// Next sets the fate of the next request with an operation. All other requests succeed.
func (k *Link) Next(f Fate, op wire.Op) {
	k.Sequence(op, f, Fate{})
}

// Sequence sets the fates of the next requests with an operation, one after the other. The last fate is for all later
// ones. Requests with other operations succeed.
func (k *Link) Sequence(op wire.Op, fates ...Fate) {
	k.Decide(func(got wire.Op, _ Sent) Fate {
		if got != op {
			return Fate{}
		}

		f := fates[0]
		fates = fates[min(1, len(fates)-1):]
		return f
	})
}

// Decide sets the rule that decides the fate of each request.
func (k *Link) Decide(rule func(wire.Op, Sent) Fate) {
	k.mu.Lock()
	defer k.mu.Unlock()

	k.rule = rule
	if k.wake == nil {
		k.wake = make(chan struct{})
	}
}

// Mend makes all requests succeed again. Requests that were lost fail now.
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

		// The request arrives when the client has given up waiting for the reply.
		if f.Delay > Patience {
			late := redis.NewCmd(ctx, cmd.Args()...)
			time.AfterFunc(f.Delay, func() { _ = next(context.WithoutCancel(ctx), late) })
			return Unanswered(cmd, wake)
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

// fateOf returns the fate of a command, and a channel that is closed when lost commands must fail.
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

// Unanswered waits for a reply that does not come: for Patience, or until wake is closed. It returns ErrLost.
func Unanswered(cmd redis.Cmder, wake <-chan struct{}) error {
	select {
	case <-time.After(Patience):
	case <-wake:
	}
	cmd.SetErr(ErrLost)
	return ErrLost
}
