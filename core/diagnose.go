package core

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/goredis"
)

// A Diagnosis is what [Diagnose] found out.
type Diagnosis struct {
	Nodes    []NodeDiagnosis // in the order given; of a Redis Cluster, one for each master
	Findings []Finding       // about several nodes, or all
}

// Diagnose examines the servers behind nodes, and says what is wrong with them and how to mend it: whether they can be
// reached and may be nodes, what their users may do, whether clocks, guards and replicas let them vote, whether they take
// writes, and what a restart would forget. It is for people and checks that look at the nodes before, or while, Lockers are
// at work on them: it needs no Locker, so also servers that New refuses can be looked at. opts are those of the Lockers:
// prefix, TTLs, clock window and guard are what nodes are held against.
//
// It asks all servers at once, each about a dozen short requests, and does not wait for the answer to any of them for longer
// than the node timeout; of a server that does not answer one, nothing more is asked. Where servers are slow it takes ten node
// timeouts at most. A client that heeds no contexts may go on with such a request by itself, until its own timeouts.
//
// It begins no quarantine and changes nothing, but that it tries the rights of the client's user on a key of its own, which
// it deletes, and subscribes once. What the user may not ask (CONFIG GET) is not known then; the rights are those of the
// client's user: to check those of a service, run it with the service's.
//
// A server that is down, or in whatever trouble, is a finding and no error. The error matches ErrInvalid, where options or
// clients are unfit, or is the error and cause of ctx, when that has ended.
func Diagnose(ctx context.Context, nodes []redis.UniversalClient, opts ...Option) (Diagnosis, error) {
	if ctx == nil {
		return Diagnosis{}, errNoContext
	}
	p, err := defaults().with(opts).policy(len(nodes))
	if err := errors.Join(append([]error{err}, goredis.Check(nodes, maxNodes)...)...); err != nil {
		return Diagnosis{}, fmt.Errorf("lockkit: %w: %w", ErrInvalid, err)
	}
	keys := keysOver(nodes, &p)
	found := make([][]*examination, len(nodes))
	var examined sync.WaitGroup
	for i, c := range nodes {
		examined.Go(func() { found[i] = examineNode(ctx, i, c, &p, keys) })
	}
	examined.Wait() // soon, also when ctx has ended
	d := diagnosis{p: &p, servers: slices.Concat(found...)}
	if err := endOf(ctx); err != nil {
		return Diagnosis{}, fmt.Errorf("lockkit: diagnose: %w", err)
	}
	d.judge()
	for _, x := range d.servers {
		d.Nodes = append(d.Nodes, x.NodeDiagnosis)
	}
	return d.Diagnosis, nil
}
