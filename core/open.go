package core

import (
	"errors"
	"fmt"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/goredis"
	"github.com/lockkit/lockkit/internal/faults"
)

// Open is New with clients that it makes, and that Close closes. Their settings suit locks: no retries, respect for
// contexts, and timeouts of the order of the node timeout, which follows from the TTL. The same holds for the clients
// of Sentinels and of servers of a Redis Cluster. Each URL is one node, which is
//
//   - a server: "redis://user:password@host:6379/0", as redis.ParseURL reads it;
//   - a primary that Sentinels watch:
//     "redis-sentinel://host1:26379/0?addr=host2:26379&addr=host3:26379&master_name=mymaster", as
//     redis.ParseFailoverURL reads it: a user and a password before the host are for the Sentinels, and those for the
//     servers are parameters, &username=user&password=secret;
//   - a Redis Cluster, all of it: "redis-cluster://user:password@host1:7000?addr=host2:7000", as
//     redis.ParseClusterURL reads it; some of its servers are enough.
//
// "rediss://", "rediss-sentinel://" and "rediss-cluster://" are the same over TLS, see WithTLS. If a URL or an option
// is invalid, the error names each of them, matches ErrInvalid, and does not show any part of a URL that cannot be
// parsed. A parameter that is unknown, or would make clients ask a replica, is invalid.
func Open(urls []string, opts ...Option) (*Locker, error) {
	clients, err := dialNodes(urls, opts)
	if err != nil {
		return nil, err
	}
	l, err := New(clients, opts...)
	if err != nil {
		return nil, errors.Join(err, closeClients(clients))
	}
	l.e.closeOwnClients = sync.OnceValue(func() error { return closeClients(clients) })
	return l, nil
}

// dialNodes returns the clients of Open, one for each URL.
func dialNodes(urls []string, opts []Option) ([]redis.UniversalClient, error) {
	p, err := newPolicy(opts, len(urls))
	d := goredis.Dialer{Timeout: p.nodeTimeout, TLS: p.tls}
	clients := make([]redis.UniversalClient, 0, len(urls))
	dialErrs := make([]error, len(urls))
	for i, address := range urls {
		client, err := d.Dial(address)
		if err != nil {
			dialErrs[i] = err
			continue
		}
		clients = append(clients, client)
	}

	var f faults.List
	f.AddElements("node", dialErrs)
	err = errors.Join(append([]error{err}, f...)...)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lockkit: %w: %w", ErrInvalid, err), closeClients(clients))
	}
	return clients, nil
}

// closeClients closes all clients, and joins their errors.
func closeClients(clients []redis.UniversalClient) (err error) {
	for _, c := range clients {
		err = errors.Join(err, c.Close())
	}
	return err
}
