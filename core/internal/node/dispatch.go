package node

import (
	"context"

	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// Send starts the round and sends its requests over the lanes. The values of ctx reach the hooks of a client if a
// request travels alone. The cancellation of ctx does not reach the request.
func (r *Round) Send(ctx context.Context, to quorum.Set) {
	r.Begin(ctx, to)
	Dispatch(r)
}

// Dispatch sends the requests of rounds about one key. It queues the requests to a node together, so that they leave in
// one batch if there is room. A release goes before an acquisition, because lanes send releases first.
func Dispatch(rounds ...*Round) {
	for i := range rounds[0].Nodes {
		var room [2]request // spares an allocation
		requests := room[:0]

		for _, r := range rounds {
			q, ok := r.admit(i)
			if ok {
				requests = append(requests, q)
			}
		}

		if len(requests) > 0 {
			rounds[0].lanes[i].submit(requests...)
		}
	}
}

// admit returns the round's request to a node, and reports whether the node may be asked. If its breaker is open,
// the node gets its vote at once.
func (r *Round) admit(i int) (q request, ok bool) {
	if !r.Asked.Has(i) {
		return request{}, false
	}

	n := r.Nodes[i]
	b, err := n.begin(r.Sent, r.Timeout, r.AskTroubled, r.tagName)
	if err != nil {
		v := quorum.NewVote(wire.CircuitOpen, err)
		r.addVote(i, v)
		r.observeReply(n, &v)
		return request{}, false
	}
	return request{round: r, breaker: b}, true
}
