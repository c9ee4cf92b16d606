package core

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/redis/go-redis/v9"
)

// checkClients finds what is wrong with a list of clients without asking anybody.
func checkClients(clients []redis.UniversalClient) error {
	var faults []error
	if len(clients) == 0 || len(clients) > maxNodes {
		faults = append(faults, fmt.Errorf("%d nodes, must be 1 to %d", len(clients), maxNodes))
	}
	seen := map[redis.UniversalClient]int{}
	for i, c := range clients {
		if v := reflect.ValueOf(c); c == nil || v.Kind() == reflect.Pointer && v.IsNil() {
			faults = append(faults, fmt.Errorf("node %d: client is nil", i))
			continue
		}
		if isA[*redis.Ring](c) {
			faults = append(faults, fmt.Errorf("node %d: a Ring spreads keys over several servers; pass its servers as nodes", i))
		}
		if !reflect.TypeOf(c).Comparable() {
			continue
		}
		if first, twice := seen[c]; twice {
			faults = append(faults, fmt.Errorf("node %d: the same client as node %d", i, first))
			continue
		}
		seen[c] = i
	}
	return errors.Join(faults...)
}

// A sentinelClient is the client of a primary that Sentinels watch, which by itself does not say whom it asks.
type sentinelClient struct {
	*redis.Client
	sentinels string
}

// isA reports whether a client is a T, or a struct that embeds one, however deep.
func isA[T redis.UniversalClient](c redis.UniversalClient) bool {
	_, ok := embedded(reflect.ValueOf(c), reflect.TypeFor[T]())
	return ok
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
