package core

import (
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/layout"

	"github.com/lockkit/lockkit/core/internal/goredis"
)

// keysOver are the keys on nodes behind clients: with a Redis Cluster among them, spread over its shards.
func keysOver(clients []redis.UniversalClient, prefix string) keyspace {
	if slices.ContainsFunc(clients, func(c redis.UniversalClient) bool { return goredis.ClusterOf(c) != nil }) {
		return layout.New(prefix, clusterBuckets)
	}
	return layout.New(prefix, 1)
}
