package node

import (
	"context"

	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// Send starts the round: its requests travel over the lanes. The values of ctx reach the hooks of a client if a request travels
// alone; the end of ctx does not.
func (r *Round) Send(ctx context.Context, to quorum.Set) {
	r.Begin(ctx, to)
	Dispatch(r)
}

// Dispatch sends the requests of rounds about one key. The requests to one node leave in one batch, in the order of the rounds.
func Dispatch(rounds ...*Round) {
	for i := range rounds[0].Nodes {
		var room [2]request
		requests := room[:0]
		for _, r := range rounds {
			q, ok := r.ask(i)
			if ok {
				requests = append(requests, q)
			}
		}
		if len(requests) > 0 {
			rounds[0].lanes[i].submit(requests...)
		}
	}
}

// ask returns what the round asks of a node, if the node may be asked.
func (r *Round) ask(i int) (q request, ok bool) {
	if !r.Asked.Has(i) {
		return request{}, false
	}
	n := r.Nodes[i]
	b, err := n.admit(r.Sent, r.Timeout, r.Must, r.tagged)
	if err != nil {
		v := quorum.Said(wire.CircuitOpen, err)
		r.hear(i, v)
		r.tellReply(n, &v)
		return request{}, false
	}
	return request{r: r, b: b}, true
}
