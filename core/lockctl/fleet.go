package main

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/urfave/cli/v3"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/internal/goredis"
	"github.com/lockkit/lockkit/core/internal/inside"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// A fleet gives a command access to all nodes.
type fleet struct {
	*core.Locker
	clients []redis.UniversalClient
	keys    *wire.Keyspace
}

// dialNodes returns a fleet with clients and without a Locker.
func (a *app) dialNodes(cmd *cli.Command) (*fleet, error) {
	if o := cmd.String("output"); o != "table" && o != "json" {
		return nil, usagef("-o is table or json")
	}

	urls, err := a.urls(cmd)
	if err != nil {
		return nil, err
	}
	conf, err := a.tls(cmd)
	if err != nil {
		return nil, err
	}

	clients, err := a.dial(urls, append(a.options(cmd), core.WithTLS(conf))...)
	return &fleet{clients: clients}, err
}

// open returns a fleet with a Locker. opts are applied after the options of the services.
func (a *app) open(cmd *cli.Command, opts ...core.Option) (*fleet, error) {
	f, err := a.dialNodes(cmd)
	if err != nil {
		return nil, err
	}

	buckets := 1
	if slices.ContainsFunc(f.clients, isCluster) {
		buckets = wire.Buckets
	}
	f.keys = wire.NewKeyspace(a.prefix(cmd), buckets, false)

	f.Locker, err = core.New(f.clients, append(a.options(cmd), opts...)...)
	if err != nil {
		f.closeClients()
		return nil, fmt.Errorf("%w (doctor looks at nodes one by one)", err)
	}
	return f, nil
}

func isCluster(c redis.UniversalClient) bool {
	_, ok := c.(*redis.ClusterClient)
	return ok
}

// openAsServices returns a fleet with a Locker like the services' own.
func (a *app) openAsServices(cmd *cli.Command) (*fleet, error) { return a.open(cmd) }

// openToInspect is open for commands that must work on broken nodes and must not change them.
func (a *app) openToInspect(cmd *cli.Command) (*fleet, error) {
	return a.open(cmd, inside.AllowUnfit.(core.Option))
}

// openToChange is openToInspect for commands that change something: warnings of the Locker are logged.
func (a *app) openToChange(cmd *cli.Command) (*fleet, error) {
	log := slog.New(slog.NewTextHandler(a.stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	return a.open(cmd, inside.AllowUnfit.(core.Option), core.WithLogger(log))
}

func (f *fleet) close() {
	//nolint:forbidigo // the command's context may have ended
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()

	if f.Locker != nil {
		f.Close(ctx) // if it fails, the end of the process frees the rest
	}
	f.closeClients()
}

func (f *fleet) closeClients() {
	for _, c := range f.clients {
		c.Close()
	}
}

func (f *fleet) quorum() int { return len(f.clients)/2 + 1 }

// addr returns the address of a node.
func (f *fleet) addr(i int) string { return goredis.AddrOf(f.clients[i]) }
