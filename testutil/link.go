package testutil

import (
	"context"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Link is the network between one process and the servers that its clients
// connect to. A fault of a [Node] affects all clients, a fault of a Link only
// its own. Add it to clients before they are used, with AddHook. The zero value
// is a network without faults. One client may have several Links: one for
// itself, and one that it shares with all clients of its process.
//
// [Link.Cut] and [Link.Kill] act on connections, and so on subscriptions too;
// [Link.Lose] and [Link.OnRequest] act on requests. All methods are safe for
// concurrent use. A switch is in effect when its method returns: from then on
// nothing is sent, and no reply arrives, that the switch forbids.
type Link struct {
	// mu guards the fields below, and the connections' fields.
	mu        sync.Mutex
	cut       bool
	killed    bool
	lose      int // the number of replies still to lose
	onRequest func(cmd redis.Cmder) Action
	conns     map[*linkConn]struct{}
	mended    chan struct{} // closed by Mend and Kill; nil while no request waits for it
}

var _ redis.Hook = (*Link)(nil)

// Cut makes the network swallow everything, in both directions, until Mend:
// requests never arrive, and requests in progress get no answer. A client that
// dials gets a connection that does not answer. The client's timeouts decide
// how long it waits.
func (k *Link) Cut() {
	k.mu.Lock()
	defer k.mu.Unlock()

	if k.killed {
		return
	}

	k.cut = true
	for c := range k.conns {
		c.cut = true
	}
}

// Restore ends Cut. It resets the connections that were cut, because bytes may be
// missing from them: requests that wait on them fail, and the client dials
// again. Mend does nothing if the Link is not cut, or was killed.
func (k *Link) Restore() {
	k.mu.Lock()
	defer k.mu.Unlock()

	if k.killed {
		return
	}
	k.cut = false
	k.resetCutLocked()
}

// Kill simulates the death of the process, as the servers see it: its
// connections are reset, and it opens no others. Requests in progress get no
// answer, and every later request fails within a millisecond, unsent.
func (k *Link) Kill() {
	k.mu.Lock()
	defer k.mu.Unlock()

	k.cut = false
	k.killed = true
	for c := range k.conns {
		c.cut = true
	}
	k.resetCutLocked()
}

// Lose makes the next n requests execute and then fail as if the connection had
// been reset before the reply came. A pipeline counts as one request;
// handshakes and subscriptions do not count. Lose(0) ends this; Mend does not.
func (k *Link) Lose(n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lose = n
}

// OnRequest sets the hook that decides about every request, except handshakes
// and subscriptions. It is called when the request is made, and must not change
// it. A nil hook lets everything pass. For a pipeline it is called with each
// command, and an Action for one command affects the whole pipeline. The fields
// of Action mean the same as for [Node.OnRequest], except that they affect only
// the request and not its connection: other requests of the client are not held
// up. If a request or its reply is dropped, the request fails when its context
// ends, on Mend or Kill, and at the latest after five seconds, go-redis's read
// timeout.
func (k *Link) OnRequest(hook func(cmd redis.Cmder) Action) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.onRequest = hook
}

// resetCutLocked resets the connections that are cut, and ends the waits for Mend.
func (k *Link) resetCutLocked() {
	for c := range k.conns {
		if c.cut {
			c.resetLocked()
		}
	}
	if k.mended != nil {
		close(k.mended)
		k.mended = nil
	}
}

// DialHook implements [redis.Hook]. While the Link is cut or killed, a dial
// succeeds with a connection that passes nothing on, because go-redis prints
// each dial that fails. The errors of other dials are returned.
func (k *Link) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		k.mu.Lock()
		reachable := !k.cut && !k.killed
		k.mu.Unlock()

		if !reachable {
			return k.connect(nil, addr), nil
		}
		inner, err := next(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return k.connect(inner, addr), nil
	}
}

// ProcessHook implements [redis.Hook].
func (k *Link) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return k.process(ctx, []redis.Cmder{cmd}, func(ctx context.Context, cmds []redis.Cmder) error {
			return next(ctx, cmds[0])
		})
	}
}

// ProcessPipelineHook implements [redis.Hook].
func (k *Link) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { return k.process(ctx, cmds, next) }
}

// process sends the commands of one request with next, and applies the faults that are set for it.
func (k *Link) process(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
	action, lost := k.decide(cmds)
	switch {
	case action == (Action{}) && !lost:
		return next(ctx, cmds)
	case action.DropRequest:
		return k.waitUnanswered(ctx, cmds)
	}

	// A request in the network arrives even if its caller has given up.
	sendCtx := context.WithoutCancel(ctx)
	if action.Twice {
		_ = next(sendCtx, cmds)
	}

	time.Sleep(action.Delay) //nolint:forbidigo // the request travels for this long, regardless of other events
	err := next(sendCtx, cmds)
	time.Sleep(action.ReplyDelay) //nolint:forbidigo // as does the reply

	if lost {
		return setErr(cmds, resetError("read", ""))
	}

	cutMeanwhile := action.ReplyDelay > 0 && k.isCut()
	if action.DropReply || cutMeanwhile {
		return k.waitUnanswered(ctx, cmds)
	}

	return err
}

// decide returns the Action for the commands of one request, and whether
// [Link.Lose] makes it fail after its execution.
func (k *Link) decide(cmds []redis.Cmder) (all Action, lost bool) {
	k.mu.Lock()
	hook, losing := k.onRequest, k.lose > 0
	k.mu.Unlock()
	if hook == nil && !losing {
		return all, false
	}

	requests := 0
	for _, cmd := range cmds {
		if isHandshake[strings.ToUpper(cmd.Name())] {
			continue
		}
		requests++
		if hook != nil {
			all = all.merge(hook(cmd))
		}
	}
	if requests == 0 || all.DropRequest {
		return all, false
	}

	return all, k.takeLose()
}

// takeLose decrements lose, and reports whether it was above zero.
func (k *Link) takeLose() bool {
	k.mu.Lock()
	defer k.mu.Unlock()

	if k.lose <= 0 {
		return false
	}
	k.lose--
	return true
}

// merge returns an Action with the faults of both and the longer delays.
func (a Action) merge(b Action) Action {
	return Action{
		Delay:       max(a.Delay, b.Delay),
		DropRequest: a.DropRequest || b.DropRequest,
		DropReply:   a.DropReply || b.DropReply,
		ReplyDelay:  max(a.ReplyDelay, b.ReplyDelay),
		Twice:       a.Twice || b.Twice,
	}
}

// isCut reports whether the Link is cut or killed.
func (k *Link) isCut() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.cut || k.killed
}

// readTimeout is the default of go-redis.
const readTimeout = 5 * time.Second

// waitUnanswered waits for a reply that does not come, and returns the error that ends the wait.
func (k *Link) waitUnanswered(ctx context.Context, cmds []redis.Cmder) error {
	k.mu.Lock()
	if k.killed {
		k.mu.Unlock()
		return setErr(cmds, resetError("read", ""))
	}
	if k.mended == nil {
		k.mended = make(chan struct{})
	}

	mended := k.mended
	k.mu.Unlock()

	timer := time.NewTimer(readTimeout)
	defer timer.Stop()
	select {
	case <-mended:
		return setErr(cmds, resetError("read", ""))
	case <-ctx.Done():
	case <-timer.C:
	}

	return setErr(cmds, linkError("read", "", os.ErrDeadlineExceeded))
}

// setErr makes err the result of cmds, and returns it.
func setErr(cmds []redis.Cmder, err error) error {
	for _, cmd := range cmds {
		cmd.SetErr(err)
	}
	return err
}
