// Package goredis contains what core knows about go-redis: the kinds of clients, how to dial them, and the meaning
// of their errors.
package goredis

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/internal/faults"
)

// Check returns the faults of a list of clients. It sends no request.
func Check(clients []redis.UniversalClient, most int) (f faults.List) {
	f.Check(len(clients) == 0 || len(clients) > most, "%d nodes, must be 1 to %d", len(clients), most)

	errs := make([]error, len(clients))
	for i, c := range clients {
		errs[i] = checkClient(clients[:i], c)
	}
	f.AddElements("node", errs)
	return f
}

// checkClient returns an error if c cannot be the client of a node beside the clients before it.
func checkClient(before []redis.UniversalClient, c redis.UniversalClient) error {
	if isNil(c) {
		return errors.New("client is nil")
	}

	var f faults.List
	_, isRing := c.(interface{ Options() *redis.RingOptions })
	f.Check(isRing, "a Ring spreads keys over several servers; pass its servers as nodes")

	// Other types of clients cannot be compared.
	if reflect.ValueOf(c).Comparable() {
		first := slices.Index(before, c)
		f.Check(first >= 0, "the same client as node %d", first)
	}
	return errors.Join(f...)
}

// isNil reports whether c is nil, or a nil pointer.
func isNil(c redis.UniversalClient) bool {
	if c == nil {
		return true
	}
	v := reflect.ValueOf(c)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

// assumedPool is the pool size of a client that does not show its options.
const assumedPool = 10

// optionsOf returns the user of a client, the size of one of its pools, and the limit of connections in a pool (0
// for none).
func optionsOf(c redis.UniversalClient) (user string, pool, limit int) {
	switch c := c.(type) {
	case interface{ Options() *redis.Options }:
		o := c.Options()
		return cmp.Or(o.Username, "default"), o.PoolSize, o.MaxActiveConns
	case interface{ Options() *redis.ClusterOptions }: // the sizes are for each server
		o := c.Options()
		return cmp.Or(o.Username, "default"), o.PoolSize, o.MaxActiveConns
	}
	return "<user>", assumedPool, 0
}

// Connections returns the number of connections that one pool of c may have.
func Connections(c redis.UniversalClient) int {
	_, pool, limit := optionsOf(c)
	return max(1, min(pool, cmp.Or(limit, pool)))
}

// UserOf returns the user of a client, as an ACL names it, or "<user>" if the client does not show its options.
func UserOf(c redis.UniversalClient) string {
	user, _, _ := optionsOf(c)
	return user
}

// A sentinel is the client of a primary that Sentinels watch. The embedded client does not show the Sentinels.
type sentinel struct {
	*redis.Client
	sentinels string
}

// WithReadTimeout returns a client whose reads have a timeout. Without one, each request that is swallowed would
// cost the pool a connection for good.
func WithReadTimeout(c redis.UniversalClient, timeout time.Duration) redis.UniversalClient {
	own, ok := c.(*redis.Client)
	if !ok {
		return c
	}

	o := own.Options()
	if o.ReadTimeout > 0 || o.ContextTimeoutEnabled {
		return c
	}
	return own.WithTimeout(timeout) // shares the pool
}

// AddrOf names a client for messages. It returns "" if the client does not show its address.
func AddrOf(c redis.UniversalClient) string {
	switch c := c.(type) {
	case *redis.Client:
		return c.Options().Addr
	case *sentinel:
		return c.sentinels
	case *redis.ClusterClient:
		return fmt.Sprintf("cluster %v", c.Options().Addrs)
	}
	return ""
}

// MayRetry reports whether a client may retry a request on its own, even if the request must not be retried.
func MayRetry(c redis.UniversalClient) bool {
	switch c.(type) {
	case *redis.Client, *sentinel: // they respect NoRetry
		return false
	}
	return true
}
