package core

import (
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/goredis"
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
	d, faults := goredis.Dialer{Timeout: p.nodeTimeout, TLS: p.tls}, []error{err}
	clients := make([]redis.UniversalClient, 0, len(urls))
	for i, address := range urls {
		client, err := d.Dial(address)
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
