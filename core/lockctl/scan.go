package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
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
			if err := walkServer(ctx, server, pattern, ask, each); err != nil {
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

func walkServer(ctx context.Context, server redis.UniversalClient, pattern string, ask func(redis.Pipeliner, string) redis.Cmder, each func(reading)) error {
	for cursor := uint64(0); ; {
		names, next, err := server.Scan(ctx, cursor, pattern, step).Result()
		if err != nil {
			return err
		}
		for part := range slices.Chunk(names, step) {
			if err := read(ctx, server, part, ask, each); err != nil {
				return err
			}
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// read reads what is under names in one request.
func read(ctx context.Context, server redis.UniversalClient, names []string, ask func(redis.Pipeliner, string) redis.Cmder, each func(reading)) error {
	pipe := server.Pipeline()
	at := pipe.Time(ctx)
	var asked []redis.Cmder
	for _, name := range names {
		asked = append(asked, ask(pipe, name))
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	if at.Err() != nil {
		return at.Err()
	}
	for i, cmd := range asked {
		switch err := cmd.Err(); {
		case redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK"): // to another server of the Cluster
		case err != nil && !redis.HasErrorPrefix(err, "WRONGTYPE"):
			return err
		default:
			each(reading{name: names[i], got: cmd, clock: at.Val()})
		}
	}
	return nil
}
