package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/urfave/cli/v3"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/internal/inside"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// An app is one invocation of lockctl.
type app struct {
	stdout *stickyWriter
	stderr io.Writer
	getenv func(string) string
	dial   func(urls []string, opts ...core.Option) ([]redis.UniversalClient, error)
}

func flags() []cli.Flag {
	return []cli.Flag{
		&cli.StringSliceFlag{Name: "node", Usage: "`URL` of a node, such as redis://user:password@host:6379/0, redis-sentinel://host:26379?master_name=mymaster or redis-cluster://host:7000 (rediss… for TLS); further addresses of one node are parameters, &addr=host:port. Once for each node, in any order. Else LOCKKIT_NODES"},
		&cli.StringFlag{Name: "ca", Usage: "`FILE` with the certificate of the CA that signed those of the nodes, in PEM, in place of the system's CAs. Else LOCKKIT_CA"},
		&cli.StringFlag{Name: "cert", Usage: "`FILE` with the client's certificate, in PEM, for nodes that ask for one. Else LOCKKIT_CERT"},
		&cli.StringFlag{Name: "cert-key", Usage: "`FILE` with its private key. Else LOCKKIT_CERT_KEY"},
		&cli.StringFlag{Name: "server-name", Usage: "what the nodes' certificates are for, where that is not what they are dialled by. Else LOCKKIT_SERVER_NAME"},
		&cli.StringFlag{Name: "prefix", Usage: "key prefix of the services (core.WithKeyPrefix). Else LOCKKIT_PREFIX, or lockkit:"},
		&cli.DurationFlag{Name: "timeout", Value: 30 * time.Second, Usage: "give up after this long"},
		&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Value: "table", Usage: "table or json"},
		&cli.DurationFlag{Name: "max-ttl", Usage: "max TTL of the services (core.WithMaxTTL), if it is not theirs by default"},
		&cli.DurationFlag{Name: "clock-window", Value: 500 * time.Millisecond, Usage: "clock window of the services (core.WithClockWindow)"},
		&cli.BoolFlag{Name: "guard", Usage: "whether the services have the restart guard (core.WithRestartGuard); by default with three nodes and more"},
		&cli.DurationFlag{Name: "replica-lag", Usage: "replica lag of the services (core.WithReplicaLag), which nodes with replicas have"},
	}
}

// A fleet gives a command access to all nodes.
type fleet struct {
	*core.Locker
	clients []redis.UniversalClient
	keys    *wire.Keyspace
}

// urls returns the URLs of the nodes, from the flags or else from the environment.
func (a *app) urls(cmd *cli.Command) ([]string, error) {
	urls := cmd.StringSlice("node")
	if len(urls) == 0 {
		for url := range strings.SplitSeq(a.getenv("LOCKKIT_NODES"), ",") {
			if url = strings.TrimSpace(url); url != "" {
				urls = append(urls, url)
			}
		}
	}
	if len(urls) == 0 {
		return nil, usagef("no nodes: give --node redis://host:6379 for each, or set LOCKKIT_NODES")
	}
	for i, url := range urls {
		if !strings.Contains(url, "://") {
			urls[i] = "redis://" + url
		}
	}
	return urls, nil
}

// setting returns the value of a flag, or else of its environment variable.
func (a *app) setting(cmd *cli.Command, name string) string {
	if value := cmd.String(name); value != "" {
		return value
	}
	return a.getenv("LOCKKIT_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_")))
}

// tls returns the TLS configuration, or nil if no flag or variable sets any part of it.
func (a *app) tls(cmd *cli.Command) (*tls.Config, error) {
	ca, cert, key, name := a.setting(cmd, "ca"), a.setting(cmd, "cert"), a.setting(cmd, "cert-key"), a.setting(cmd, "server-name")
	if ca == "" && cert == "" && key == "" && name == "" {
		return nil, nil
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: name}
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return nil, usagef("the CA of the nodes: %w", err)
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(pem) {
			return nil, usagef("the CA of the nodes: %s has no certificate in PEM", ca)
		}
	}
	if cert != "" || key != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, usagef("the client's certificate and key (--cert and --cert-key, both): %w", err)
		}
		conf.Certificates = []tls.Certificate{pair}
	}
	return conf, nil
}

func (a *app) prefix(cmd *cli.Command) string { return cmp.Or(a.setting(cmd, "prefix"), "lockkit:") }

// options returns the options of the services that matter to lockctl.
func (a *app) options(cmd *cli.Command) []core.Option {
	opts := []core.Option{
		core.WithKeyPrefix(a.prefix(cmd)), core.WithClockWindow(cmd.Duration("clock-window")), core.WithLogger(slog.New(slog.DiscardHandler)),
	}
	if d := cmd.Duration("max-ttl"); d != 0 {
		opts = append(opts, core.WithMaxTTL(d), core.TTL(min(d, 10*time.Second)))
	}
	if cmd.IsSet("guard") {
		opts = append(opts, core.WithRestartGuard(cmd.Bool("guard")))
	}
	if d := cmd.Duration("replica-lag"); d != 0 {
		opts = append(opts, core.WithReplicaLag(d))
	}
	return opts
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

// openAsServices returns a fleet with a Locker like the services' own.
func (a *app) openAsServices(cmd *cli.Command) (*fleet, error) { return a.open(cmd) }

// open returns a fleet with a Locker. opts are applied after the options of the services.
func (a *app) open(cmd *cli.Command, opts ...core.Option) (*fleet, error) {
	f, err := a.dialNodes(cmd)
	if err != nil {
		return nil, err
	}
	buckets := 1
	if slices.ContainsFunc(f.clients, func(c redis.UniversalClient) bool { _, is := c.(*redis.ClusterClient); return is }) {
		buckets = wire.Buckets
	}
	f.keys = wire.NewKeyspace(a.prefix(cmd), buckets, false)
	if f.Locker, err = core.New(f.clients, append(a.options(cmd), opts...)...); err != nil {
		f.closeClients()
		return nil, fmt.Errorf("%w (doctor looks at nodes one by one)", err)
	}
	return f, nil
}

// openToInspect is open for commands that must work on broken nodes and must not change them.
func (a *app) openToInspect(cmd *cli.Command) (*fleet, error) {
	return a.open(cmd, inside.Looking.(core.Option))
}

func (f *fleet) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second) //nolint:forbidigo // the command's context may have ended
	defer cancel()
	if f.Locker != nil {
		f.Close(ctx) // after that, the process ends anyway
	}
	f.closeClients()
}

func (f *fleet) closeClients() {
	for _, c := range f.clients {
		c.Close()
	}
}

// withFleet calls run with a fleet, for at most --timeout.
func (a *app) withFleet(ctx context.Context, cmd *cli.Command, open func(*cli.Command) (*fleet, error), run func(context.Context, *fleet) error) error {
	timeout := cmd.Duration("timeout")
	if timeout <= 0 {
		return usagef("--timeout must be more than 0")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no result within %v: give it longer with --timeout, or ask doctor which node is slow", timeout))
	defer cancel()
	f, err := open(cmd)
	if err != nil {
		return err
	}
	defer f.close()
	err = run(ctx, f)
	if err != nil && ctx.Err() != nil && !errors.Is(err, errProblemFound) && !errors.Is(err, errMayBeDone) {
		return context.Cause(ctx)
	}
	return err
}

// errMayBeDone is matched by the error of a command that may have changed something.
var errMayBeDone = errors.New("may have been done")

// withFleetToChange is withFleet for commands that change something. If the change was made, or may have been made, the
// error says so, whatever ended the command. change names the change, as in "the release". howToCheck tells the
// operator how to see whether it was made.
func (a *app) withFleetToChange(ctx context.Context, cmd *cli.Command, open func(*cli.Command) (*fleet, error), change, howToCheck string, run func(context.Context, *fleet) error) error {
	return a.withFleet(ctx, cmd, open, func(ctx context.Context, f *fleet) error {
		err := run(ctx, f)
		switch {
		case a.stdout.err != nil:
			return fmt.Errorf("%s is done, but its result could not be printed: %w", change, a.stdout.err)
		case err != nil && ctx.Err() != nil:
			return fmt.Errorf("%w; %s %w by some nodes or all: %s", context.Cause(ctx), change, errMayBeDone, howToCheck)
		}
		return err
	})
}

// keyArg returns the key that the arguments name.
func keyArg(cmd *cli.Command) (string, error) {
	args := cmd.Args().Slice()
	switch {
	case len(args) == 1 && args[0] == "":
		return "", usagef("the key is empty: is a variable of the shell not set?")
	case cmd.Bool("parts") && len(args) > 0:
		return core.Key(args...), nil
	case len(args) == 1:
		return args[0], nil
	}
	return "", usagef("give one key; one made by core.Key is given as its parts: lockctl %s --parts order 42", cmd.Name)
}

// newPartsFlag returns a new flag for each command, because flags have state.
func newPartsFlag() cli.Flag {
	return &cli.BoolFlag{Name: "parts", Usage: "the arguments are the parts of a key that core.Key makes, as adapters do"}
}
