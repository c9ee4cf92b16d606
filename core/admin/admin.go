// Package admin is what operators call, and services do not: it says what is wrong with nodes, declares new ones to be new, ends
// leases of holders that are stuck, and drops completion records. The command lockctl is made of it.
//
//	Diagnose       what is wrong with servers, and how to fix it; needs no Locker
//	Provision      declare nodes to be new, so that they vote at once
//	Revoke         end the lease of a holder that is stuck
//	ForgetRecord   drop a completion record, so that the work is done again
//	Dial           the clients of core.Open
package admin

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/internal/inside"
	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// ErrTokenMismatch: the key is not held, or not recorded as completed, under that token: it has changed since somebody looked.
// This call has changed nothing; look again. It matches [core.ErrInvalid].
var ErrTokenMismatch = fmt.Errorf("%w: not the token of the key", core.ErrInvalid)

// Dial makes the clients that core.Open makes for these URLs. It talks to nobody, and the caller closes the clients. The error
// matches core.ErrInvalid.
func Dial(urls []string, opts ...core.Option) ([]redis.UniversalClient, error) {
	return inside.Dial(urls, opts)
}

// A question is one request to all nodes, those in trouble too.
type question struct {
	op    core.OpKind
	key   string
	group *node.Group
	quorum.Tally
	nodes []core.NodeReply
}

// ask waits for the answer of each node.
func ask(ctx context.Context, l *core.Locker, op core.OpKind, key string, request func(*node.Group) wire.Request) (*question, error) {
	q := &question{op: op, key: key}
	g, leave, err := inside.Enter(ctx, l, &key)
	switch {
	case errors.Is(err, core.ErrClosed):
		return nil, q.fails(err)
	case err != nil:
		return nil, err
	}
	defer leave()
	asked := request(g)
	var r node.Round
	r.Init(g, asked.Op(), g.Keys.Bucket(key), g.Conf.Timeout, nil, nil)
	r.Request, r.Must = asked, true
	r.Send(ctx, quorum.All(len(g.Nodes)))
	if !r.Wait(ctx) {
		return nil, q.fails(inside.EndOf(ctx))
	}
	q.group, q.Tally, q.nodes = g, r.Tally, inside.Replies(g, &r.Tally).([]core.NodeReply)
	return q, nil
}

// fails is the error of an operation that ended so.
func (q *question) fails(err error) error {
	return &core.OpError{Op: q.op, Key: q.key, Err: err, Nodes: q.nodes}
}
