package core

import (
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/goredis"
)

// dial makes the clients of Open.
func dial(urls []string, opts []Option) ([]redis.UniversalClient, error) {
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
