package main

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/lockkit/lockkit/core"
)

// flags returns the flags of all commands.
func flags() []cli.Flag {
	return append(connectionFlags(),
		&cli.DurationFlag{
			Name:  "timeout",
			Value: 30 * time.Second,
			Usage: "give up after this long",
		},
		&cli.StringFlag{
			Name:    "output",
			Aliases: []string{"o"},
			Value:   "table",
			Usage:   "table or json",
		},

		// Options of the services that change what nodes do for lockctl.
		&cli.DurationFlag{
			Name:  "max-ttl",
			Usage: "max TTL of the services (core.WithMaxTTL), if it is not theirs by default",
		},
		&cli.DurationFlag{
			Name:  "clock-window",
			Value: 500 * time.Millisecond,
			Usage: "clock window of the services (core.WithClockWindow)",
		},
		&cli.BoolFlag{
			Name: "guard",
			Usage: "whether the services have the restart guard (core.WithRestartGuard); " +
				"by default with three nodes and more",
		},
		&cli.DurationFlag{
			Name:  "replica-lag",
			Usage: "replica lag of the services (core.WithReplicaLag), which nodes with replicas have",
		},
	)
}

// connectionFlags returns the flags that say which servers and keys to use, and how to connect.
func connectionFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringSliceFlag{
			Name: "node",
			Usage: "`URL` of a node, such as redis://user:password@host:6379/0, " +
				"redis-sentinel://host:26379?master_name=mymaster or redis-cluster://host:7000 (rediss… for TLS); " +
				"further addresses of one node are parameters, &addr=host:port. " +
				"Once for each node, in any order. Else LOCKKIT_NODES",
		},

		// How to speak TLS with the nodes.
		&cli.StringFlag{
			Name: "ca",
			Usage: "`FILE` with the certificate of the CA that signed those of the nodes, in PEM, " +
				"in place of the system's CAs. Else LOCKKIT_CA",
		},
		&cli.StringFlag{
			Name:  "cert",
			Usage: "`FILE` with the client's certificate, in PEM, for nodes that ask for one. Else LOCKKIT_CERT",
		},
		&cli.StringFlag{
			Name:  "cert-key",
			Usage: "`FILE` with its private key. Else LOCKKIT_CERT_KEY",
		},
		&cli.StringFlag{
			Name: "server-name",
			Usage: "what the nodes' certificates are for, where that is not what they are dialled by. " +
				"Else LOCKKIT_SERVER_NAME",
		},

		&cli.StringFlag{
			Name:  "prefix",
			Usage: "key prefix of the services (core.WithKeyPrefix). Else LOCKKIT_PREFIX, or lockkit:",
		},
	}
}

// setting returns the value of a flag, or else of its environment variable.
func (a *app) setting(cmd *cli.Command, name string) string {
	if value := cmd.String(name); value != "" {
		return value
	}
	return a.getenv("LOCKKIT_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_")))
}

// urls returns the URLs of the nodes, from the flags or else from the environment.
func (a *app) urls(cmd *cli.Command) ([]string, error) {
	urls := cmd.StringSlice("node")
	if len(urls) == 0 {
		for url := range strings.SplitSeq(a.getenv("LOCKKIT_NODES"), ",") {
			url = strings.TrimSpace(url)
			if url != "" {
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

// tls returns the TLS configuration, or nil if no flag or variable sets any part of it.
func (a *app) tls(cmd *cli.Command) (*tls.Config, error) {
	ca := a.setting(cmd, "ca")
	cert := a.setting(cmd, "cert")
	certKey := a.setting(cmd, "cert-key")
	serverName := a.setting(cmd, "server-name")
	if cmp.Or(ca, cert, certKey, serverName) == "" {
		return nil, nil
	}

	conf := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: serverName}

	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return nil, usagef("the CA of the nodes: %w", err)
		}
		conf.RootCAs = x509.NewCertPool()
		found := conf.RootCAs.AppendCertsFromPEM(pem)
		if !found {
			return nil, usagef("the CA of the nodes: %s has no certificate in PEM", ca)
		}
	}

	if cert != "" || certKey != "" {
		pair, err := tls.LoadX509KeyPair(cert, certKey)
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
		core.WithKeyPrefix(a.prefix(cmd)),
		core.WithClockWindow(cmd.Duration("clock-window")),

		// lockctl prints errors itself.
		core.WithLogger(slog.New(slog.DiscardHandler)),
	}

	if d := cmd.Duration("max-ttl"); d != 0 {
		ttl := min(d, 10*time.Second) // the default, unless it exceeds the max TTL
		opts = append(opts, core.WithMaxTTL(d), core.TTL(ttl))
	}
	if cmd.IsSet("guard") {
		opts = append(opts, core.WithRestartGuard(cmd.Bool("guard")))
	}
	if d := cmd.Duration("replica-lag"); d != 0 {
		opts = append(opts, core.WithReplicaLag(d))
	}
	return opts
}

// newPartsFlag returns a new flag for each command, because flags have state.
func newPartsFlag() cli.Flag {
	return &cli.BoolFlag{
		Name:  "parts",
		Usage: "the arguments are the parts of a key that core.Key makes, as adapters do",
	}
}

// newTokenFlag returns a new flag for each command, because flags have state.
func newTokenFlag() cli.Flag {
	return &cli.StringFlag{
		Name:  "token",
		Usage: "the fencing `TOKEN` that show prints for the key; it is never guessed",
	}
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

// keyAndTokenArgs returns the arguments of a command that ends a lease or a record.
func keyAndTokenArgs(cmd *cli.Command) (key string, token uint64, err error) {
	key, err = keyArg(cmd)
	if err != nil {
		return "", 0, err
	}

	text := cmd.String("token")
	if text == "" {
		return "", 0, usagef("--token is missing: " +
			"give the token that lockctl show prints, so that only this lease is ended")
	}

	token, err = strconv.ParseUint(text, 10, 64)
	if err != nil || token == 0 {
		return "", 0, usagef("--token is a number greater than 0, as lockctl show prints it")
	}
	return key, token, nil
}
