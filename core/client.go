package core

import (
	"errors"
	"reflect"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/layout"
)

// checkClients finds what is wrong with a list of clients without asking anybody.
func checkClients(clients []redis.UniversalClient) error {
	var f faults
	f.bad(len(clients) == 0 || len(clients) > maxNodes, "%d nodes, must be 1 to %d", len(clients), maxNodes)
	for i, c := range clients {
		v := reflect.ValueOf(c)
		if c == nil || v.Kind() == reflect.Pointer && v.IsNil() {
			f.bad(true, "node %d: client is nil", i)
			continue
		}
		_, ring := embedded(v, reflect.TypeFor[*redis.Ring]())
		f.bad(ring, "node %d: a Ring spreads keys over several servers; pass its servers as nodes", i)
		if v.Comparable() {
			first := slices.Index(clients, c)
			f.bad(first < i, "node %d: the same client as node %d", i, first)
		}
	}
	return errors.Join(f...)
}

// keysOver are the keys on nodes behind clients: with a Redis Cluster among them, spread over its shards.
func keysOver(clients []redis.UniversalClient, prefix string) keyspace {
	if slices.ContainsFunc(clients, func(c redis.UniversalClient) bool { return clusterOf(c) != nil }) {
		return layout.New(prefix, clusterBuckets)
	}
	return layout.New(prefix, 1)
}

// A sentinelClient is the client of a primary that Sentinels watch, which by itself does not say whom it asks.
type sentinelClient struct {
	*redis.Client
	sentinels string
}

// clusterOf returns the ClusterClient that a client is or embeds, nil if there is none.
func clusterOf(c redis.UniversalClient) *redis.ClusterClient {
	v, ok := embedded(reflect.ValueOf(c), reflect.TypeFor[*redis.ClusterClient]())
	if !ok || !v.CanInterface() {
		return nil
	}
	return v.Interface().(*redis.ClusterClient)
}

var goRedis = reflect.TypeFor[redis.Client]().PkgPath()

// embedded returns the value of a type that v is, or that it embeds, however deep.
func embedded(v reflect.Value, want reflect.Type) (found reflect.Value, ok bool) {
	for v.IsValid() && v.Type() != want && (v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface) {
		v = v.Elem()
	}
	if !v.IsValid() || v.Type() == want {
		return v, v.IsValid()
	}
	if v.Kind() != reflect.Struct || strings.HasPrefix(v.Type().PkgPath(), goRedis) {
		return v, false // what go-redis' own types are made of says nothing
	}
	for i := range v.NumField() {
		if v.Type().Field(i).Anonymous {
			if found, ok := embedded(v.Field(i), want); ok {
				return found, true
			}
		}
	}
	return v, false
}
