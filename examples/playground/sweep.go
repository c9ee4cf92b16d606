package main

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/examples/internal/stage"
)

const (
	// retention is for how long it is known that a task was completed: longer than asynq takes to notice that its worker is
	// dead.
	retention = 4 * time.Minute
	// beyond it, so much longer, is for how long nodes keep a record, for clocks that jump.
	beyond = 2 * time.Hour

	sweepEvery = 20 * time.Second
)

// sweep removes from the nodes, now and then, the records that are past their retention: here is a new one every few
// moments, embedded nodes have them in this process, and look at all of them at each request. No service needs this.
func (p *playground) sweep() {
	var clients []*redis.Client
	for _, addr := range p.nodes.all.Addrs {
		clients = append(clients, redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, DisableIdentity: true, ContextTimeoutEnabled: true}))
	}
	for stage.Sleep(p.ctx, sweepEvery) == nil {
		for i, c := range clients {
			if p.nodes.state(i) == up {
				sweepNode(p.ctx, c)
			}
		}
	}
	for _, c := range clients {
		c.Close()
	}
}

// dropPast removes a key that its node keeps for beyond at most; it may have been taken anew meanwhile.
var dropPast = redis.NewScript(`
local left = redis.call('PTTL', KEYS[1])
if left >= 0 and left < tonumber(ARGV[1]) then return redis.call('DEL', KEYS[1]) end
return 0`)

// sweepNode gives up when the node is in trouble: it comes again.
func sweepNode(ctx context.Context, c *redis.Client) {
	ctx, cancel := context.WithTimeout(ctx, sweepEvery/2)
	defer cancel()
	keys := c.Scan(ctx, 0, "*", 200).Iterator()
	for keys.Next(ctx) {
		if dropPast.Run(ctx, c, []string{keys.Val()}, beyond.Milliseconds()).Err() != nil {
			return
		}
	}
}
