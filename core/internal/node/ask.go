package node

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/goredis"
	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// Nodes are asked by rounds, whose requests travel over the lanes, or looked at by plain reads beside them.

// Send starts the round. Values of ctx reach the hooks of the clients where a request travels alone; its end does not.
func (r *Round) Send(ctx context.Context, to quorum.Set) {
	r.Begin(ctx, to)
	Dispatch(r)
}

// Dispatch asks the nodes. What rounds about one key ask of a node leaves in one batch, in their order.
func Dispatch(rounds ...*Round) {
	for i := range rounds[0].Nodes {
		var room [2]request
		requests := room[:0]
		for _, r := range rounds {
			if q, ok := r.ask(i); ok {
				requests = append(requests, q)
			}
		}
		if len(requests) > 0 {
			rounds[0].lanes[i].submit(requests...)
		}
	}
	for _, r := range rounds { // the observer is the user's code, so it comes last
		for i := range r.unasked {
			r.tellReply(r.Nodes[r.unasked[i].Node], &r.unasked[i].Vote)
		}
	}
}

// ask is what the round asks of a node, if it may.
func (r *Round) ask(i int) (q request, ok bool) {
	if !r.Asked.Has(i) {
		return request{}, false
	}
	n := r.Nodes[i]
	b, err := n.admit(r.Sent, r.Timeout, r.Must, r.tagged)
	if err != nil {
		v := quorum.Said(wire.CircuitOpen, err)
		r.hear(i, v)
		r.unasked = append(r.unasked, Reply{v, i, 0})
		return request{}, false
	}
	return request{r: r, b: b}, true
}

// Look reads what a node stores for a key, beside all rounds and without a write, and the node's clock. A node in trouble is not
// asked. The vote says whether the node votes at all, which one that has nothing of the key may not yet, or why nothing was read.
// A client that heeds no context may take longer than the timeout.
func (b *Bucket) Look(ctx context.Context, n *Node, key string, timeout time.Duration) (text string, clock wire.NodeTime, v quorum.Vote) {
	sent := b.Clock.Now()
	admitted, err := n.admit(sent, timeout, false, b.tagged)
	if err != nil {
		return "", 0, quorum.Said(wire.CircuitOpen, err)
	}
	text, clock, v, err = b.read(&nodeContext{ctx, time.Now().Add(timeout)}, n, key)
	now := b.Clock.Now()
	n.leave(admitted, now, err)
	if goredis.Answered(err) {
		b.answered.Store(now)
	}
	if v.Err, v.Latency = err, now.Since(sent); err == nil {
		n.HeardClock(v.Skew, v.Latency)
	}
	return text, clock, v
}

// read asks the server; in a Cluster it is the one that has the key. All goes over one connection, the guard last: nothing is
// forgotten in between.
func (b *Bucket) read(ctx context.Context, n *Node, key string) (text string, clock wire.NodeTime, v quorum.Vote, err error) {
	client, resource := n.Client, b.Keys.Resource(key)
	if n.Cluster != nil {
		if client, err = n.Cluster.MasterForKey(ctx, resource); err != nil {
			return "", 0, v, err
		}
	}
	cmds := []redis.Cmder{redis.NewTimeCmd(ctx, "time"), redis.NewStringCmd(ctx, "get", resource)}
	if b.Conf.Guarded {
		cmds = append(cmds, redis.NewStringCmd(ctx, b.Keys.GuardQuery(b.index)...), redis.NewStringCmd(ctx, "info", "replication"))
	}
	goredis.Pipeline(ctx, client, cmds)
	for _, cmd := range cmds {
		if err := cmd.Err(); err != nil && !errors.Is(err, redis.Nil) { // which says that nothing is stored
			return "", 0, v, err
		}
	}
	clock, text = wire.NodeTimeOf(cmds[0].(*redis.TimeCmd).Val()), cmds[1].(*redis.StringCmd).Val()
	if text == "" && cmds[1].Err() == nil {
		text = "\x00" // an empty text is as foreign as this
	}
	v.Verdict, v.Skew = wire.Gone, clock.Skew(time.Now())
	if b.Conf.Guarded {
		info := ParseInfo(cmds[3].(*redis.StringCmd).Val())
		if guard := wire.ParseGuard(cmds[2].(*redis.StringCmd).Val(), info["master_replid"], clock, b.Conf.MaxTTL, b.Conf.Lag); guard.State > wire.GuardVoting {
			v.Verdict, v.Rest = wire.Quarantined, guard.Left
		}
	}
	return text, clock, v, nil
}
