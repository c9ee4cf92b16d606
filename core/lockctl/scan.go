package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/goredis"
)

// step is how many names a server looks at for one SCAN, and how many keys are read in one request.
const step = 512

// A reading is what a node has under a name.
type reading struct {
	node  int
	name  string
	got   redis.Cmder // the answer to what was asked; it may be the error that the key is of another type
	clock time.Time   // of the server, when it answered
}

// walk reads what all nodes have under the names that match, each node in steps, and calls each for it, one at a time. It
// returns why nodes were not read, or not to their end.
func (f *fleet) walk(ctx context.Context, patterns []string, ask func(pipe redis.Pipeliner, name string) redis.Cmder, each func(reading)) map[int]error {
	var mu sync.Mutex
	var all sync.WaitGroup
	silent := map[int]error{}
	for i, client := range f.clients {
		all.Go(func() {
			err := walkNode(ctx, client, patterns, ask, func(r reading) {
				mu.Lock()
				defer mu.Unlock()
				r.node = i
				each(r)
			})
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				silent[i] = err
			}
		})
	}
	all.Wait()
	return silent
}

func walkNode(ctx context.Context, client redis.UniversalClient, patterns []string, ask func(redis.Pipeliner, string) redis.Cmder, each func(reading)) error {
	servers, err := serversOf(ctx, client)
	if err != nil {
		return err
	}
	var errs []error
	for _, server := range servers { // the next may answer
		for _, pattern := range patterns {
			if err := walkServer(ctx, client, server, pattern, ask, each); err != nil {
				if len(servers) > 1 {
					err = fmt.Errorf("%s: %w", goredis.AddrOf(server), err)
				}
				errs = append(errs, err)
				break
			}
		}
	}
	return errors.Join(errs...)
}

// serversOf are those that have a part of what the node has: of a Redis Cluster, its masters.
func serversOf(ctx context.Context, client redis.UniversalClient) (servers []redis.UniversalClient, err error) {
	cluster, ok := client.(*redis.ClusterClient)
	if !ok {
		return []redis.UniversalClient{client}, nil
	}
	var mu sync.Mutex
	err = cluster.ForEachMaster(ctx, func(_ context.Context, master *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		servers = append(servers, master)
		return nil
	})
	slices.SortFunc(servers, func(a, b redis.UniversalClient) int { return cmp.Compare(goredis.AddrOf(a), goredis.AddrOf(b)) })
	return servers, err
}

// walkServer reads what a server of a node has. What has moved to another server meanwhile is asked of the node.
func walkServer(ctx context.Context, node, server redis.UniversalClient, pattern string, ask func(redis.Pipeliner, string) redis.Cmder, each func(reading)) error {
	for cursor := uint64(0); ; {
		names, next, err := server.Scan(ctx, cursor, pattern, step).Result()
		if err != nil {
			return err
		}
		for part := range slices.Chunk(names, step) {
			moved, err := read(ctx, server, part, ask, each)
			if err == nil && len(moved) > 0 {
				moved, err = read(ctx, node, moved, ask, each)
			}
			if err == nil && len(moved) > 0 {
				err = fmt.Errorf("%d keys are being moved to other servers: call again", len(moved))
			}
			if err != nil {
				return err
			}
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// errReplica means that a server is not what the services lock on. A Sentinel's or a Cluster's client may be connected to it
// since before a failover.
var errReplica = errors.New("it is a replica now, so what it has may be old: call again when the failover is over")

// read reads what is under names in one request, and returns the names that have moved to other servers.
func read(ctx context.Context, server redis.UniversalClient, names []string, ask func(redis.Pipeliner, string) redis.Cmder, each func(reading)) (moved []string, err error) {
	pipe := server.Pipeline()
	at, role := pipe.Time(ctx), pipe.Info(ctx, "replication")
	var asked []redis.Cmder
	for _, name := range names {
		asked = append(asked, ask(pipe, name))
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	if err := cmp.Or(at.Err(), role.Err()); err != nil {
		return nil, err
	}
	if strings.Contains(role.Val(), "role:slave") {
		return nil, errReplica
	}
	for i, cmd := range asked {
		switch err := cmd.Err(); {
		case redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK"):
			moved = append(moved, names[i])
		case err != nil && !redis.HasErrorPrefix(err, "WRONGTYPE"):
			return nil, err
		default:
			each(reading{name: names[i], got: cmd, clock: at.Val()})
		}
	}
	return moved, nil
}
