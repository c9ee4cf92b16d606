package core

import (
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/wire"

	"github.com/lockkit/lockkit/core/internal/goredis"
)

// keysOver are the keys on nodes behind clients: with a Redis Cluster among them, spread over its shards.
func keysOver(clients []redis.UniversalClient, p *policy) *wire.Keyspace {
	if slices.ContainsFunc(clients, func(c redis.UniversalClient) bool { return goredis.ClusterOf(c) != nil }) {
		return wire.NewKeyspace(p.prefix, wire.Buckets, p.guarded)
	}
	return wire.NewKeyspace(p.prefix, 1, p.guarded)
}
