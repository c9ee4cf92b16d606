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

// A scan reads all names that match one of the patterns.
type scan struct {
	patterns []string
	query    func(ctx context.Context, pipe redis.Pipeliner, name string) redis.Cmder // reads one name
	visit    func(reading)                                                            // receives each reply
}

// A reading is the reply of a node to the query for one name.
type reading struct {
	node       int
	name       string
	reply      redis.Cmder // may be the error that the key is of another type
	serverTime time.Time   // the server's clock when it answered
}

// scanNodes runs a scan on all nodes concurrently, but calls visit from one goroutine at a time. It returns the errors
// of the nodes that were not read, or not completely.
func (f *fleet) scanNodes(ctx context.Context, s scan) map[int]error {
	var (
		scans  sync.WaitGroup
		mu     sync.Mutex // guards unread, and serializes the calls of visit
		unread = map[int]error{}
	)

	for i, client := range f.clients {
		onNode := s
		onNode.visit = func(r reading) {
			mu.Lock()
			defer mu.Unlock()
			r.node = i
			s.visit(r)
		}

		scans.Go(func() {
			err := onNode.node(ctx, client)
			if err == nil {
				return
			}

			mu.Lock()
			defer mu.Unlock()
			unread[i] = err
		})
	}

	scans.Wait()
	return unread
}

// node runs the scan on all servers of a node. If a server fails, the other servers are read all the same.
func (s scan) node(ctx context.Context, client redis.UniversalClient) error {
	servers, err := serversOf(ctx, client)
	if err != nil {
		return err
	}

	var errs []error
	for _, server := range servers {
		err := s.server(ctx, client, server)
		if err != nil && len(servers) > 1 {
			err = fmt.Errorf("%s: %w", goredis.AddrOf(server), err)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// serversOf returns the servers of a node: the masters of a Redis Cluster, or else the client itself.
func serversOf(ctx context.Context, client redis.UniversalClient) (servers []redis.UniversalClient, err error) {
	cluster, ok := client.(*redis.ClusterClient)
	if !ok {
		return []redis.UniversalClient{client}, nil
	}

	var mu sync.Mutex // guards servers: ForEachMaster calls the function concurrently
	err = cluster.ForEachMaster(ctx, func(_ context.Context, master *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		servers = append(servers, master)
		return nil
	})

	slices.SortFunc(servers, func(a, b redis.UniversalClient) int {
		return cmp.Compare(goredis.AddrOf(a), goredis.AddrOf(b))
	})
	return servers, err
}

// server runs the scan on one server of a node.
func (s scan) server(ctx context.Context, node, server redis.UniversalClient) error {
	for _, pattern := range s.patterns {
		err := s.pattern(ctx, node, server, pattern)
		if err != nil {
			return err
		}
	}
	return nil
}

// pattern reads the names on one server that match a pattern.
func (s scan) pattern(ctx context.Context, node, server redis.UniversalClient, pattern string) error {
	var cursor uint64
	for {
		names, next, err := server.Scan(ctx, cursor, pattern, scanBatch).Result()
		if err != nil {
			return err
		}

		// SCAN may return more names than it was asked for.
		for batch := range slices.Chunk(names, scanBatch) {
			err := s.batch(ctx, node, server, batch)
			if err != nil {
				return err
			}
		}

		if next == 0 {
			return nil
		}
		cursor = next
	}
}

// batch reads some names from a server. Keys that move to another server during the scan are read through the client of
// the node.
func (s scan) batch(ctx context.Context, node, server redis.UniversalClient, names []string) error {
	moved, err := s.read(ctx, server, names)

	// The client of a Redis Cluster follows redirections.
	if err == nil && len(moved) > 0 {
		moved, err = s.read(ctx, node, moved)
	}

	if err == nil && len(moved) > 0 {
		err = fmt.Errorf("%d keys are being moved to other servers: call again", len(moved))
	}
	return err
}

// errReplica means that the server is not the one that the services lock on. A client for Sentinel or Cluster may still
// be connected to the primary of the time before a failover.
var errReplica = errors.New(
	"it is a replica now, so what it has may be old: call again when the failover is over")

// read queries names in one request, and returns the names that have moved to other servers.
func (s scan) read(ctx context.Context, server redis.UniversalClient, names []string) (moved []string, err error) {
	pipe := server.Pipeline()
	serverTime := pipe.Time(ctx)
	role := pipe.Info(ctx, "replication")

	var replies []redis.Cmder
	for _, name := range names {
		replies = append(replies, s.query(ctx, pipe, name))
	}
	_, _ = pipe.Exec(ctx) // each command has its own error

	err = cmp.Or(serverTime.Err(), role.Err())
	if err != nil {
		return nil, err
	}

	if strings.Contains(role.Val(), "role:slave") {
		return nil, errReplica
	}

	for i, reply := range replies {
		err := reply.Err()
		switch {
		case redis.HasErrorPrefix(err, "MOVED"), redis.HasErrorPrefix(err, "ASK"):
			moved = append(moved, names[i])
		case err != nil && !redis.HasErrorPrefix(err, "WRONGTYPE"):
			return nil, err
		default:
			s.visit(reading{name: names[i], reply: reply, serverTime: serverTime.Val()})
		}
	}
	return moved, nil
}
