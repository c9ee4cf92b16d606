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

// A Dialer makes clients with settings that suit locks.
type Dialer struct {
	Timeout time.Duration // of a dial, a read and a write
	TLS     *tls.Config   // nil = as the URL says
}

// Dial makes the client of one node. What is wrong with its URL shows nothing of what the URL contains.
func (d Dialer) Dial(address string) (redis.UniversalClient, error) {
	scheme, rest, whole := strings.Cut(address, "://")
	if !whole { // go-redis would read a host as what it knows no place for, and dial localhost
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
		return nil, errURL // what go-redis says quotes the URL, and a password with it
	}
	if err := d.suits(o.TLSConfig, []string{o.Addr}, nil); err != nil {
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
	if err := d.suits(o.TLSConfig, o.SentinelAddrs, f); err != nil {
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
	u, err := url.Parse(address)
	var f faults.List
	f.Check(o.ReadOnly || o.RouteByLatency || o.RouteRandomly, "%w", errReplicas)
	hasDatabase := err == nil && strings.Trim(u.Path, "/") != ""
	f.Check(hasDatabase, "a Redis Cluster has no database but 0: leave it out") // which go-redis does not read
	if err := d.suits(o.TLSConfig, o.Addrs, f); err != nil {
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

func withoutNotifications() *maintnotifications.Config {
	// With a type of endpoint, go-redis v9.22 does not resolve the host, which it does otherwise although the mode is off.
	return &maintnotifications.Config{Mode: maintnotifications.ModeDisabled, EndpointType: maintnotifications.EndpointTypeNone}
}

// certified is what the certificate of a server must be for: what the server is dialled by. Sentinels and Clusters mostly
// know servers by IP addresses, which few certificates have; where the URL has a name, it is that.
func certified(addr, host string) string {
	dialled, _, err := net.SplitHostPort(addr)
	if err != nil {
		dialled = addr
	}
	hostIsName := host != "" && net.ParseIP(host) == nil
	if hostIsName && net.ParseIP(dialled) != nil {
		return host
	}
	return dialled
}

// suits says what is wrong with a URL that says this of its servers, beside the faults that it has anyway.
func (d Dialer) suits(conf *tls.Config, addrs []string, f faults.List) error {
	f.Check(strings.Contains(strings.Join(addrs, ""), ","), "%w", errURL)
	f.Check(conf == nil && d.TLS != nil, "it is without TLS, for which there is a configuration: rediss:// is with it")
	return errors.Join(f...)
}

// dialer connects to the servers of a URL that says parsed of TLS, in which go-redis has the host of the URL as the name
// that all servers must have.
func (d Dialer) dialer(parsed *tls.Config) func(context.Context, string, string) (net.Conn, error) {
	conf := parsed
	host := ""
	if parsed != nil {
		host = parsed.ServerName
		if d.TLS != nil {
			conf = d.TLS.Clone()
			conf.InsecureSkipVerify = conf.InsecureSkipVerify || parsed.InsecureSkipVerify //nolint:gosec // as the URL or the caller says
		} else {
			conf.ServerName = ""
		}
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		o := &redis.Options{DialTimeout: d.Timeout, TLSConfig: conf}
		if conf != nil && conf.ServerName == "" {
			o.TLSConfig = conf.Clone()
			o.TLSConfig.ServerName = certified(addr, host)
		}
		return redis.NewDialer(o)(ctx, network, addr)
	}
}
