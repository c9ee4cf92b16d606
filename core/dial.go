package core

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Dial makes clients for New with settings that suit locks: no retries, contexts heeded, timeouts of the order of the
// node timeout, which follows from the TTL among opts; of Sentinels and servers of a Redis Cluster as well. It talks to
// nobody; the caller closes the clients. Each URL is one node, which is
//
//   - a server: "redis://user:password@host:6379/0", as redis.ParseURL reads it;
//   - a primary that Sentinels watch: "redis-sentinel://host1:26379/0?addr=host2:26379&addr=host3:26379&master_name=mymaster",
//     as redis.ParseFailoverURL reads it: a user and a password before the host are for the Sentinels, and those for the
//     servers are parameters, &username=user&password=secret;
//   - a Redis Cluster, all of it: "redis-cluster://user:password@host1:7000?addr=host2:7000", as redis.ParseClusterURL reads
//     it, some of its servers being enough.
//
// "rediss://", "rediss-sentinel://" and "rediss-cluster://" are the same over TLS, see WithTLS. The error matches
// ErrInvalid, names every fault of URLs and options, and shows nothing of what an unreadable URL contains. A parameter that
// is not known, or would have a replica asked, is a fault.
func Dial(urls []string, opts ...Option) ([]redis.UniversalClient, error) {
	p, err := defaults().with(opts).policy(len(urls))
	faults := []error{err}
	clients := make([]redis.UniversalClient, 0, len(urls))
	for i, address := range urls {
		client, err := dial(address, &p)
		if err != nil {
			faults = append(faults, fmt.Errorf("node %d: %w", i, err))
			continue
		}
		clients = append(clients, client)
	}
	if err := errors.Join(faults...); err != nil {
		return nil, errors.Join(fmt.Errorf("lockkit: %w: %w", ErrInvalid, err), closeClients(clients))
	}
	return clients, nil
}

// dial makes the client of one node.
func dial(address string, p *policy) (redis.UniversalClient, error) {
	scheme, rest, _ := strings.Cut(address, "://")
	scheme, kind, _ := strings.Cut(strings.ToLower(scheme), "-")
	plain := scheme + "://" + rest
	switch kind {
	case "":
		return dialServer(address, p)
	case "sentinel":
		return dialSentinel(plain, p)
	case "cluster":
		return dialCluster(plain, p)
	}
	return nil, errURL
}

var (
	errURL = errors.New("it must be a URL that begins with redis://, redis-sentinel:// or redis-cluster:// (with TLS rediss://, rediss-sentinel:// or rediss-cluster://), " +
		"such as redis://user:password@host:6379/0, whose parameters are known, and which has no comma: each node is an element of its own, and further addresses of one node are &addr=host:port")
	errReplicas = errors.New("it would ask replicas (read_only, replica_only, route_by_latency, route_randomly), and a node is a primary")
)

// suits says what is wrong with a URL that says this of its servers, beside the faults that it has anyway.
func (p *policy) suits(conf *tls.Config, addrs []string, f faults) error {
	f.bad(strings.Contains(strings.Join(addrs, ""), ","), "%w", errURL)
	f.bad(conf == nil && p.tls != nil, "it is without TLS, for which there is a configuration: rediss:// is with it")
	return errors.Join(f...)
}

func dialServer(address string, p *policy) (redis.UniversalClient, error) {
	o, err := redis.ParseURL(address)
	if err != nil {
		return nil, errURL // what go-redis says quotes the URL, and a password with it
	}
	if err := p.suits(o.TLSConfig, []string{o.Addr}, nil); err != nil {
		return nil, err
	}
	o.MaxRetries, o.DialerRetries, o.ContextTimeoutEnabled = -1, 1, true
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout = p.nodeTimeout, p.nodeTimeout, p.nodeTimeout
	o.MaintNotificationsConfig = withoutNotifications()
	o.Dialer = p.dialer(o.TLSConfig)
	return redis.NewClient(o), nil
}

func dialSentinel(address string, p *policy) (redis.UniversalClient, error) {
	o, err := redis.ParseFailoverURL(address)
	if err != nil {
		return nil, errURL
	}
	var f faults
	f.bad(o.MasterName == "", "master_name is missing: what the Sentinels call the primary")
	f.bad(o.ReplicaOnly || o.RouteByLatency || o.RouteRandomly, "%w", errReplicas)
	if err := p.suits(o.TLSConfig, o.SentinelAddrs, f); err != nil {
		return nil, err
	}
	o.MaxRetries, o.DialerRetries, o.ContextTimeoutEnabled = -1, 1, true
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout = p.nodeTimeout, p.nodeTimeout, p.nodeTimeout
	o.Dialer = p.dialer(o.TLSConfig)
	return &sentinelClient{redis.NewFailoverClient(o), fmt.Sprintf("sentinel %s %v", o.MasterName, o.SentinelAddrs)}, nil
}

func dialCluster(address string, p *policy) (redis.UniversalClient, error) {
	o, err := redis.ParseClusterURL(address)
	if err != nil {
		return nil, errURL
	}
	u, err := url.Parse(address)
	var f faults
	f.bad(o.ReadOnly || o.RouteByLatency || o.RouteRandomly, "%w", errReplicas)
	f.bad(err == nil && strings.Trim(u.Path, "/") != "", "a Redis Cluster has no database but 0: leave it out") // which go-redis does not read
	if err := p.suits(o.TLSConfig, o.Addrs, f); err != nil {
		return nil, err
	}
	o.MaxRetries, o.DialerRetries, o.ContextTimeoutEnabled = -1, 1, true
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout = p.nodeTimeout, p.nodeTimeout, p.nodeTimeout
	o.MaintNotificationsConfig = withoutNotifications()
	o.Dialer = p.dialer(o.TLSConfig)
	return redis.NewClusterClient(o), nil
}

func withoutNotifications() *maintnotifications.Config {
	// With a type of endpoint, go-redis v9.22 does not resolve the host, which it does otherwise although the mode is off.
	return &maintnotifications.Config{Mode: maintnotifications.ModeDisabled, EndpointType: maintnotifications.EndpointTypeNone}
}

// dialer connects to the servers of a URL that says parsed of TLS, in which go-redis has the host of the URL as the name
// that all servers must have.
func (p *policy) dialer(parsed *tls.Config) func(context.Context, string, string) (net.Conn, error) {
	conf, host := parsed, ""
	if parsed != nil {
		host = parsed.ServerName
		if p.tls != nil {
			conf = p.tls.Clone()
			conf.InsecureSkipVerify = conf.InsecureSkipVerify || parsed.InsecureSkipVerify //nolint:gosec // as the URL or the caller says
		} else {
			conf.ServerName = ""
		}
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		o := &redis.Options{DialTimeout: p.nodeTimeout, TLSConfig: conf}
		if conf != nil && conf.ServerName == "" {
			o.TLSConfig = conf.Clone()
			o.TLSConfig.ServerName = certified(addr, host)
		}
		return redis.NewDialer(o)(ctx, network, addr)
	}
}

// certified is what the certificate of a server must be for: what the server is dialled by. Sentinels and Clusters mostly
// know servers by IP addresses, which few certificates have; where the URL has a name, it is that.
func certified(addr, host string) string {
	dialled, _, err := net.SplitHostPort(addr)
	if err != nil {
		dialled = addr
	}
	if net.ParseIP(dialled) != nil && net.ParseIP(host) == nil && host != "" {
		return host
	}
	return dialled
}
