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

// Look reads the data that a node stores for some keys of the bucket, and the node's clock, by plain reads outside of
// any round. A node in trouble is not asked.
//
// The texts are in the order of the keys; the text of a key without data is empty. The vote tells whether the node votes
// at all, because a node that stores nothing for the keys may not vote yet. If nothing was read, the vote has the
// reason. With a client that ignores contexts, Look may take longer than the timeout.
func (b *Bucket) Look(
	ctx context.Context, n *Node, keys []string, timeout time.Duration,
) (texts []string, clock wire.NodeTime, v quorum.Vote) {
	sent := b.Clock.Now()
	breaker, err := n.begin(sent, timeout, false, b.tagName)
	if err != nil {
		return nil, 0, quorum.NewVote(wire.CircuitOpen, err)
	}

	bounded := &nodeContext{Context: ctx, deadline: time.Now().Add(timeout), deadlines: b.deadlines}
	texts, clock, v, err = b.read(bounded, n, keys)
	now := b.Clock.Now()
	n.end(breaker, now, err)
	if goredis.Answered(err) {
		b.lastAnswer.Store(now)
	}

	v.Err = err
	v.Latency = now.Since(sent)
	if err == nil {
		n.addClockSample(v.Skew, v.Latency)
	}
	b.track(n, &v)
	return texts, clock, v
}

// foreignText stands for any value that lockkit has not written.
const foreignText = "\x00"

// read asks the node's server, in a Cluster the master of the bucket's shard. All reads use one connection, with the
// guard last: if the server loses its memory in between, the guard shows it.
func (b *Bucket) read(
	ctx context.Context, n *Node, keys []string,
) (texts []string, clock wire.NodeTime, v quorum.Vote, err error) {
	client := n.Client
	if n.Cluster != nil {
		client, err = n.Cluster.MasterFor(ctx, b.Keys.Resource(keys[0]))
		if err != nil {
			return nil, 0, v, err
		}
	}

	timeCmd := redis.NewTimeCmd(ctx, "time")
	cmds := []redis.Cmder{timeCmd}
	gets := make([]*redis.StringCmd, len(keys))
	for i, key := range keys {
		gets[i] = redis.NewStringCmd(ctx, "get", b.Keys.Resource(key))
		cmds = append(cmds, gets[i])
	}
	var guardCmd, infoCmd *redis.StringCmd
	if b.Conf.Guarded {
		guardCmd = redis.NewStringCmd(ctx, b.Keys.GuardQuery(b.index)...)
		infoCmd = redis.NewStringCmd(ctx, "info", "replication")
		cmds = append(cmds, guardCmd, infoCmd)
	}

	err = goredis.Pipeline(ctx, client, cmds)
	if err != nil {
		return nil, 0, v, err
	}
	for _, get := range gets {
		// A value that is no string costs its own key only.
		if redis.HasErrorPrefix(get.Err(), "WRONGTYPE") {
			get.SetErr(nil)
			get.SetVal(foreignText)
		}
	}
	for _, cmd := range cmds {
		err := cmd.Err()
		if err != nil && !errors.Is(err, redis.Nil) { // redis.Nil: nothing is stored
			return nil, 0, v, err
		}
	}

	clock = wire.NodeTimeOf(timeCmd.Val())
	for _, get := range gets {
		text := get.Val()
		if text == "" && get.Err() == nil {
			text = foreignText
		}
		texts = append(texts, text)
	}

	v.Verdict = wire.Gone
	v.Skew = clock.Skew(time.Now())
	if b.Conf.Guarded {
		b.judgeGuard(&v, guardCmd.Val(), ParseInfo(infoCmd.Val()), clock)
	}
	return texts, clock, v, nil
}

// judgeGuard changes the verdict of a node that does not vote.
func (b *Bucket) judgeGuard(v *quorum.Vote, record string, info serverInfo, clock wire.NodeTime) {
	guard := wire.ParseGuard(record, info["master_replid"], clock, b.Conf.MaxTTL, b.Conf.Lag)
	switch {
	case info.isReplica():
		v.Verdict = wire.Replica
	case guard.State > wire.GuardVoting:
		v.Verdict = wire.Quarantined
		v.Remaining = guard.Remaining
	}
}
