package core

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"time"

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
// ErrInvalid, names every fault of URLs and options, and nothing of what an unreadable URL contains. A parameter that
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

// dial makes the client of one node. What is wrong with a URL may be a part of a password, so the errors of those that
// read it stay unsaid.
func dial(address string, p *policy) (redis.UniversalClient, error) {
	if strings.TrimSpace(address) != address {
		return nil, errSpace
	}
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
	return nil, errScheme
}

var (
	errSpace      = errors.New("it begins or ends with a space")
	errScheme     = errors.New("not a URL of redis://, redis-sentinel:// or redis-cluster://, or of rediss://… with TLS")
	errServerURL  = errors.New("not a URL as redis.ParseURL reads it, such as rediss://user:password@host:6379/0")
	errSentinels  = errors.New("not a URL as redis.ParseFailoverURL reads it, such as redis-sentinel://host1:26379?addr=host2:26379&master_name=mymaster")
	errClusterURL = errors.New("not a URL as redis.ParseClusterURL reads it, such as redis-cluster://user:password@host1:7000?addr=host2:7000")
	errManyAddrs  = errors.New("a server has one address: with several, the URL of a Redis Cluster begins with redis-cluster://, and that of a primary that Sentinels watch with redis-sentinel://")
	errCommas     = errors.New("the host has a comma: further addresses are parameters, &addr=host:port")
	errNoMaster   = errors.New("master_name is missing: what the Sentinels call the primary")
	errReplicas   = errors.New("it would ask replicas (read_only, replica_only, route_by_latency, route_randomly), and a node is a primary")
	errClusterDB  = errors.New("a Redis Cluster has no database but 0: leave it out")
	errNoTLS      = errors.New("it is without TLS, for which there is a configuration: rediss:// is with it")
)

// unreadable is why a URL is not read: as it is, or because of its parameters, without which it would be.
func unreadable(err error, address string, read func(string) error) error {
	if bare, _, has := strings.Cut(address, "?"); has && read(bare) == nil {
		return fmt.Errorf("a parameter after the ? is not known, or has a value that cannot be read: %w", err)
	}
	return err
}

func dialServer(address string, p *policy) (redis.UniversalClient, error) {
	o, err := redis.ParseURL(address)
	if err != nil {
		if u, err := url.Parse(address); err == nil && (u.Query().Has("addr") || u.Query().Has("master_name")) {
			return nil, errManyAddrs
		}
		return nil, unreadable(errServerURL, address, func(bare string) error { _, err := redis.ParseURL(bare); return err })
	}
	if o.TLSConfig == nil && p.tls != nil {
		return nil, errNoTLS
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
		return nil, unreadable(errSentinels, address, func(bare string) error { _, err := redis.ParseFailoverURL(bare); return err })
	}
	var faults []error
	if o.MasterName == "" {
		faults = append(faults, errNoMaster)
	}
	if o.ReplicaOnly || o.RouteByLatency || o.RouteRandomly {
		faults = append(faults, errReplicas)
	}
	if err := errors.Join(append(faults, severalServers(o.SentinelAddrs, o.TLSConfig, p))...); err != nil {
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
		return nil, unreadable(errClusterURL, address, func(bare string) error { _, err := redis.ParseClusterURL(bare); return err })
	}
	var faults []error
	if o.ReadOnly || o.RouteByLatency || o.RouteRandomly {
		faults = append(faults, errReplicas)
	}
	if u, err := url.Parse(address); err == nil && strings.Trim(u.Path, "/") != "" { // which is not read
		faults = append(faults, errClusterDB)
	}
	if err := errors.Join(append(faults, severalServers(o.Addrs, o.TLSConfig, p))...); err != nil {
		return nil, err
	}
	o.MaxRetries, o.DialerRetries, o.ContextTimeoutEnabled = -1, 1, true
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout = p.nodeTimeout, p.nodeTimeout, p.nodeTimeout
	o.MaintNotificationsConfig = withoutNotifications()
	o.Dialer = p.dialer(o.TLSConfig)
	return redis.NewClusterClient(o), nil
}

// severalServers says what is wrong with the addresses and the TLS configuration of a node of several servers.
func severalServers(addrs []string, conf *tls.Config, p *policy) error {
	var faults []error
	if strings.Contains(strings.Join(addrs, ""), ",") {
		faults = append(faults, errCommas)
	}
	if conf == nil && p.tls != nil {
		faults = append(faults, errNoTLS)
	}
	return errors.Join(faults...)
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
	return quietDialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
		o := &redis.Options{DialTimeout: p.nodeTimeout, TLSConfig: conf}
		if conf != nil && conf.ServerName == "" {
			o.TLSConfig = conf.Clone()
			o.TLSConfig.ServerName = certified(addr, host)
		}
		conn, err := redis.NewDialer(o)(ctx, network, addr)
		if secure, ok := conn.(*tls.Conn); ok && err == nil {
			return &alertConn{Conn: secure}, nil
		}
		return conn, err
	})
}

// An alertConn is a TLS connection whose writes fail for the reason that the server gave, if it did. In TLS 1.3 a server
// may refuse the client's certificate when the handshake is over for the client, and close the connection: what is
// written then fails with a reset, and the alert that says why has come before.
type alertConn struct {
	*tls.Conn
	answered atomic.Bool
}

func (c *alertConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.answered.Store(c.answered.Load() || n > 0)
	return n, err
}

func (c *alertConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if err == nil || c.answered.Load() || errors.Is(err, os.ErrDeadlineExceeded) {
		return n, err
	}
	c.SetReadDeadline(time.Now().Add(time.Second)) // it has come, or the connection is broken
	if _, alert := c.Conn.Read(make([]byte, 1)); isAlert(alert) {
		return n, alert
	}
	return n, err
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
