package goredis

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/lockkit/lockkit/internal/faults"
)

// A Dialer makes clients with settings that suit locks: they do not retry, and a call ends with the deadline of its
// context.
type Dialer struct {
	Timeout time.Duration // of a dial, a read and a write
	TLS     *tls.Config   // nil stands for the settings in the URL
}

// Dial returns the client of one node. Its errors show nothing of the URL, which may contain a password.
func (d Dialer) Dial(address string) (redis.UniversalClient, error) {
	scheme, rest, ok := strings.Cut(address, "://")

	// Without a scheme, go-redis would take the host for something else and dial localhost.
	if !ok {
		return nil, errURL
	}

	scheme, kind, _ := strings.Cut(strings.ToLower(scheme), "-")
	plain := scheme + "://" + rest
	switch kind {
	case "":
		return d.dialServer(address)
	case "sentinel":
		return d.dialSentinel(plain)
	case "cluster":
		return d.dialCluster(plain)
	}
	return nil, errURL
}

var (
	// errURL replaces the errors of go-redis, which quote the URL with its password.
	errURL = errors.New("it must be a URL that begins with redis://, redis-sentinel:// or redis-cluster:// " +
		"(with TLS rediss://, rediss-sentinel:// or rediss-cluster://), such as redis://user:password@host:6379/0, " +
		"whose parameters are known, and which is not empty and has no comma and no space, not even at its ends: " +
		"each node is an element of its own, and further addresses of one node are &addr=host:port")
	errReplicas = errors.New("it would ask replicas (read_only, replica_only, route_by_latency, route_randomly), " +
		"and a node is a primary")
)

func (d Dialer) dialServer(address string) (redis.UniversalClient, error) {
	o, err := redis.ParseURL(address)
	if err != nil {
		return nil, errURL
	}
	if err := d.check(o.TLSConfig, []string{o.Addr}, nil); err != nil {
		return nil, err
	}

	o.MaxRetries = -1
	o.DialerRetries = 1
	o.ContextTimeoutEnabled = true

	o.DialTimeout = d.Timeout
	o.ReadTimeout = d.Timeout
	o.WriteTimeout = d.Timeout

	o.MaintNotificationsConfig = withoutNotifications()
	o.Dialer = d.dialer(o.TLSConfig)
	return redis.NewClient(o), nil
}

func (d Dialer) dialSentinel(address string) (redis.UniversalClient, error) {
	o, err := redis.ParseFailoverURL(address)
	if err != nil {
		return nil, errURL
	}

	var f faults.List
	f.Check(o.MasterName == "", "master_name is missing: what the Sentinels call the primary")
	f.Check(o.ReplicaOnly || o.RouteByLatency || o.RouteRandomly, "%w", errReplicas)
	if err := d.check(o.TLSConfig, o.SentinelAddrs, f); err != nil {
		return nil, err
	}

	o.MaxRetries = -1
	o.DialerRetries = 1
	o.ContextTimeoutEnabled = true

	o.DialTimeout = d.Timeout
	o.ReadTimeout = d.Timeout
	o.WriteTimeout = d.Timeout

	o.Dialer = d.dialer(o.TLSConfig)

	name := fmt.Sprintf("sentinel %s %v", o.MasterName, o.SentinelAddrs)
	return &sentinel{redis.NewFailoverClient(o), name}, nil
}

func (d Dialer) dialCluster(address string) (redis.UniversalClient, error) {
	o, err := redis.ParseClusterURL(address)
	if err != nil {
		return nil, errURL
	}

	// go-redis does not read the path.
	u, err := url.Parse(address)
	var f faults.List
	f.Check(o.ReadOnly || o.RouteByLatency || o.RouteRandomly, "%w", errReplicas)
	hasDatabase := err == nil && strings.Trim(u.Path, "/") != ""
	f.Check(hasDatabase, "a Redis Cluster has no database but 0: leave it out")
	if err := d.check(o.TLSConfig, o.Addrs, f); err != nil {
		return nil, err
	}

	o.MaxRetries = -1
	o.DialerRetries = 1
	o.ContextTimeoutEnabled = true

	o.DialTimeout = d.Timeout
	o.ReadTimeout = d.Timeout
	o.WriteTimeout = d.Timeout

	o.MaintNotificationsConfig = withoutNotifications()
	o.Dialer = d.dialer(o.TLSConfig)
	return redis.NewClusterClient(o), nil
}

// withoutNotifications turns maintenance notifications off. Without the type of endpoint, go-redis v9.22 resolves
// the host all the same.
func withoutNotifications() *maintnotifications.Config {
	return &maintnotifications.Config{
		Mode:         maintnotifications.ModeDisabled,
		EndpointType: maintnotifications.EndpointTypeNone,
	}
}

// certifiedName returns the name or IP address that a server's certificate must match: the address dialed. But
// Sentinels and Clusters mostly report servers by IP addresses, which few certificates contain. Then it is the host
// of the URL, if that is a name.
func certifiedName(addr, host string) string {
	dialed, _, err := net.SplitHostPort(addr)
	if err != nil {
		dialed = addr
	}

	hostIsName := host != "" && net.ParseIP(host) == nil
	if hostIsName && net.ParseIP(dialed) != nil {
		return host
	}
	return dialed
}

// check returns the faults of a URL with this TLS configuration and these addresses, after the faults in f.
func (d Dialer) check(conf *tls.Config, addrs []string, f faults.List) error {
	f.Check(strings.Contains(strings.Join(addrs, ""), ","), "%w", errURL)
	f.Check(conf == nil && d.TLS != nil, "it is without TLS, for which there is a configuration: rediss:// is with it")
	return errors.Join(f...)
}

// dialer returns a function that connects to the servers of a URL. parsed is the TLS configuration that go-redis
// read from the URL; as the name that all servers must have, it contains the host of the URL.
func (d Dialer) dialer(parsed *tls.Config) func(context.Context, string, string) (net.Conn, error) {
	conf := parsed
	host := ""
	if parsed != nil {
		host = parsed.ServerName
		if d.TLS != nil {
			conf = d.TLS.Clone()
			conf.InsecureSkipVerify = conf.InsecureSkipVerify || parsed.InsecureSkipVerify //nolint:gosec // the user's choice
		} else {
			conf.ServerName = ""
		}
	}

	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		o := &redis.Options{DialTimeout: d.Timeout, TLSConfig: conf}

		// A ServerName that the caller has set is used for all servers.
		if conf != nil && conf.ServerName == "" {
			o.TLSConfig = conf.Clone()
			o.TLSConfig.ServerName = certifiedName(addr, host)
		}
		return redis.NewDialer(o)(ctx, network, addr)
	}
}
