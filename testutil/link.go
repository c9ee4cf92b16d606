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
// connect to. A fault of a [Node] hits everybody, one of a Link only those
// clients. Add it to them before they are used, with AddHook. The zero value is
// a network without faults. One client may have several Links: one of its own,
// and one that it shares with all clients of its process.
//
// [Link.Cut] and [Link.Kill] act on connections, and so on subscriptions too;
// [Link.Lose] and [Link.OnRequest] on requests. All methods are safe for
// concurrent use. A switch that has returned is in effect: nothing is sent, and
// no reply arrives, that it forbids.
type Link struct {
	mu        sync.Mutex
	cut       bool
	killed    bool
	lose      int
	onRequest func(cmd redis.Cmder) Action
	conns     map[*linkConn]struct{}
	mended    chan struct{} // closed by Mend and Kill; nil while nobody waits for it
}

var _ redis.Hook = (*Link)(nil)

// Cut makes the network swallow everything, in both directions, until Mend: what
// is sent never arrives, and what is under way gets no answer. A client that
// dials gets a connection that does not answer. How long it waits is up to its
// timeouts.
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

// Mend ends Cut. Connections that were cut are reset, as nobody knows what they
// have lost: requests that wait on them fail, and the client dials again. A Link
// that is not cut stays as it is; one that was killed stays dead.
func (k *Link) Mend() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.killed {
		return
	}
	k.cut = false
	k.resetLocked()
}

// Kill is what the death of the process looks like to the servers: its
// connections are reset, and there will be no others. What is under way gets no
// answer, and every request from now on fails, in a millisecond, unsent.
func (k *Link) Kill() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.cut = false
	k.killed = true
	for c := range k.conns {
		c.cut = true
	}
	k.resetLocked()
}

// Lose makes the next n requests execute and fail as if the connection had been
// reset before the reply came. A pipeline is one request; handshakes and
// subscriptions are none. Lose(0) ends it, Mend does not.
func (k *Link) Lose(n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lose = n
}

// OnRequest sets the hook that decides about every request other than handshakes
// and subscriptions. It is called as the request is made, and must not change it;
// a nil hook lets everything pass. Of a pipeline it is asked for each command,
// and all of them have what one has. The fields of Action are as with
// [Node.OnRequest], but for what they do to the connection: other requests of the
// client are not held up. A request that is dropped, or whose reply is, fails
// when its context ends, on Mend or Kill, and after five seconds at the latest,
// go-redis's read timeout.
func (k *Link) OnRequest(hook func(cmd redis.Cmder) Action) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.onRequest = hook
}

// resetLocked ends the connections that are cut, and the waits for Mend.
func (k *Link) resetLocked() {
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

// DialHook implements [redis.Hook]. It does not fail by itself, because go-redis
// prints each dial that does: what is dialled while the Link is cut or killed is
// a connection that nothing comes through.
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
		return k.carry(ctx, []redis.Cmder{cmd}, func(ctx context.Context, cmds []redis.Cmder) error {
			return next(ctx, cmds[0])
		})
	}
}

// ProcessPipelineHook implements [redis.Hook].
func (k *Link) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { return k.carry(ctx, cmds, next) }
}

// carry sends commands that travel together, or does with them what it is told.
func (k *Link) carry(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
	action, lost := k.decide(cmds)
	switch {
	case action == (Action{}) && !lost:
		return next(ctx, cmds)
	case action.DropRequest:
		return k.unanswered(ctx, cmds)
	}
	// Whether somebody still waits for the reply makes no difference to what is under way.
	under := context.WithoutCancel(ctx)
	if action.Twice {
		_ = next(under, cmds)
	}
	time.Sleep(action.Delay) //nolint:forbidigo // the way of a request takes this long, whatever happens meanwhile
	err := next(under, cmds)
	time.Sleep(action.ReplyDelay) //nolint:forbidigo // likewise
	if lost {
		return fail(cmds, resetBy("read", ""))
	}
	cutMeanwhile := action.ReplyDelay > 0 && k.isCut()
	if action.DropReply || cutMeanwhile {
		return k.unanswered(ctx, cmds)
	}
	return err
}

// decide returns what is to be done with commands that travel together, and whether their reply is one that
// [Link.Lose] is for.
func (k *Link) decide(cmds []redis.Cmder) (all Action, lost bool) {
	k.mu.Lock()
	hook, losing := k.onRequest, k.lose > 0
	k.mu.Unlock()
	if hook == nil && !losing {
		return all, false
	}
	requests := 0
	for _, cmd := range cmds {
		if handshake[strings.ToUpper(cmd.Name())] {
			continue
		}
		requests++
		if hook != nil {
			all = all.and(hook(cmd))
		}
	}
	if requests == 0 || all.DropRequest {
		return all, false
	}
	return all, k.takeLose()
}

// takeLose counts down lose, and reports whether it was above zero.
func (k *Link) takeLose() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.lose <= 0 {
		return false
	}
	k.lose--
	return true
}

// and is what happens to a request of two that travel together.
func (a Action) and(b Action) Action {
	return Action{
		Delay:       max(a.Delay, b.Delay),
		DropRequest: a.DropRequest || b.DropRequest,
		DropReply:   a.DropReply || b.DropReply,
		ReplyDelay:  max(a.ReplyDelay, b.ReplyDelay),
		Twice:       a.Twice || b.Twice,
	}
}

// isCut reports whether nothing gets through.
func (k *Link) isCut() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.cut || k.killed
}

// readTimeout is what a client of go-redis has by default.
const readTimeout = 5 * time.Second

// unanswered waits for a reply that does not come.
func (k *Link) unanswered(ctx context.Context, cmds []redis.Cmder) error {
	k.mu.Lock()
	if k.killed {
		k.mu.Unlock()
		return fail(cmds, resetBy("read", ""))
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
		return fail(cmds, resetBy("read", ""))
	case <-ctx.Done():
	case <-timer.C:
	}
	return fail(cmds, linkError("read", "", os.ErrDeadlineExceeded))
}

func fail(cmds []redis.Cmder, err error) error {
	for _, cmd := range cmds {
		cmd.SetErr(err)
	}
	return err
}
