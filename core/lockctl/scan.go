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

// scanBatch is the number of names that a server examines for one SCAN, and the largest number of keys in one request.
const scanBatch = 512

// A reading is the reply of a node to the query for one name.
type reading struct {
	node       int
	name       string
	reply      redis.Cmder // may be the error that the key is of another type
	serverTime time.Time   // the server's clock when it answered
}

// scanNodes reads all names that match one of the patterns from all nodes. For each name it sends the query, and calls
// visit with the reply. Nodes are read concurrently, but visit is called by one goroutine at a time. scanNodes returns
// the errors of the nodes that were not read, or not completely.
func (f *fleet) scanNodes(ctx context.Context, patterns []string, query func(pipe redis.Pipeliner, name string) redis.Cmder, visit func(reading)) map[int]error {
	var mu sync.Mutex
	var scans sync.WaitGroup
	unread := map[int]error{}
	for i, client := range f.clients {
		scans.Go(func() {
			err := scanNode(ctx, client, patterns, query, func(r reading) {
				mu.Lock()
				defer mu.Unlock()
				r.node = i
				visit(r)
			})
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				unread[i] = err
			}
		})
	}
	scans.Wait()
	return unread
}

func scanNode(ctx context.Context, client redis.UniversalClient, patterns []string, query func(redis.Pipeliner, string) redis.Cmder, visit func(reading)) error {
	servers, err := serversOf(ctx, client)
	if err != nil {
		return err
	}
	var errs []error
	for _, server := range servers { // after an error, the next server may answer
		for _, pattern := range patterns {
			if err := scanServer(ctx, client, server, pattern, query, visit); err != nil {
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

// serversOf returns the servers of a node: the masters of a Redis Cluster, or else the client itself.
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

// scanServer reads the names on one server of a node. Keys that move to another server during the scan are read through
// the client of the node.
func scanServer(ctx context.Context, node, server redis.UniversalClient, pattern string, query func(redis.Pipeliner, string) redis.Cmder, visit func(reading)) error {
	for cursor := uint64(0); ; {
		names, next, err := server.Scan(ctx, cursor, pattern, scanBatch).Result()
		if err != nil {
			return err
		}
		for batch := range slices.Chunk(names, scanBatch) {
			moved, err := readNames(ctx, server, batch, query, visit)
			if err == nil && len(moved) > 0 {
				moved, err = readNames(ctx, node, moved, query, visit)
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

// errReplica means that the server is not the one that the services lock on. A client for Sentinel or Cluster may still
// be connected to the primary of the time before a failover.
var errReplica = errors.New("it is a replica now, so what it has may be old: call again when the failover is over")

// readNames queries names in one request, and returns the names that have moved to other servers.
func readNames(ctx context.Context, server redis.UniversalClient, names []string, query func(redis.Pipeliner, string) redis.Cmder, visit func(reading)) (moved []string, err error) {
	pipe := server.Pipeline()
	serverTime, role := pipe.Time(ctx), pipe.Info(ctx, "replication")
	var replies []redis.Cmder
	for _, name := range names {
		replies = append(replies, query(pipe, name))
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	if err := cmp.Or(serverTime.Err(), role.Err()); err != nil {
		return nil, err
	}
	if strings.Contains(role.Val(), "role:slave") {
		return nil, errReplica
	}
	for i, cmd := range replies {
		switch err := cmd.Err(); {
		case redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK"):
			moved = append(moved, names[i])
		case err != nil && !redis.HasErrorPrefix(err, "WRONGTYPE"):
			return nil, err
		default:
			visit(reading{name: names[i], reply: cmd, serverTime: serverTime.Val()})
		}
	}
	return moved, nil
}
