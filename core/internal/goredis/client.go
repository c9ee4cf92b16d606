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

// Check finds what is wrong with a list of clients without asking anybody.
func Check(clients []redis.UniversalClient, most int) (f faults.List) {
	f.Check(len(clients) == 0 || len(clients) > most, "%d nodes, must be 1 to %d", len(clients), most)
	wrong := make([]error, len(clients))
	for i, c := range clients {
		wrong[i] = unfit(clients[:i], c)
	}
	f.Each("node", wrong)
	return f
}

// unfit returns why a client cannot be that of a node, beside the clients before it.
func unfit(before []redis.UniversalClient, c redis.UniversalClient) error {
	if isNil(c) {
		return errors.New("client is nil")
	}

	var f faults.List
	_, ring := c.(interface{ Options() *redis.RingOptions })
	f.Check(ring, "a Ring spreads keys over several servers; pass its servers as nodes")
	if reflect.ValueOf(c).Comparable() {
		first := slices.Index(before, c)
		f.Check(first >= 0, "the same client as node %d", first)
	}
	return errors.Join(f...)
}

func isNil(c redis.UniversalClient) bool {
	if c == nil {
		return true
	}
	v := reflect.ValueOf(c)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

// assumedPool is how many connections a client has that does not tell.
const assumedPool = 10

// optionsOf is what a client tells of itself: whom it logs in as, and how many connections a pool of it has, and may have.
func optionsOf(c redis.UniversalClient) (user string, pool, limit int) {
	switch c := c.(type) {
	case interface{ Options() *redis.Options }:
		o := c.Options()
		return cmp.Or(o.Username, "default"), o.PoolSize, o.MaxActiveConns
	case interface{ Options() *redis.ClusterOptions }: // for each server
		o := c.Options()
		return cmp.Or(o.Username, "default"), o.PoolSize, o.MaxActiveConns
	}
	return "<user>", assumedPool, 0
}

// Connections is how many connections one pool of c has.
func Connections(c redis.UniversalClient) int {
	_, pool, limit := optionsOf(c)
	return max(1, min(pool, cmp.Or(limit, pool)))
}

// UserOf is whom a client logs in as, as an ACL names it; "<user>" where it does not tell.
func UserOf(c redis.UniversalClient) string {
	user, _, _ := optionsOf(c)
	return user
}

// A sentinel is the client of a primary that Sentinels watch, which by itself does not say whom it asks.
type sentinel struct {
	*redis.Client
	sentinels string
}

// Bounded is a client whose reads end. One without a timeout would lose a connection of its pool for good to each request
// that is swallowed.
func Bounded(c redis.UniversalClient, timeout time.Duration) redis.UniversalClient {
	own, ok := c.(*redis.Client)
	if !ok {
		return c
	}
	o := own.Options()
	if o.ReadTimeout > 0 || o.ContextTimeoutEnabled {
		return c
	}
	return own.WithTimeout(timeout) // of the same pool
}

// AddrOf names a client for messages; empty where it does not tell.
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

// Repeats reports whether a client may send a request again by itself, whatever the request says.
func Repeats(c redis.UniversalClient) bool {
	switch c.(type) {
	case *redis.Client, *sentinel: // which heed NoRetry
		return false
	}
	return true
}
