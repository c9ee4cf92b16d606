package core

import (
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Dial makes clients for New with settings that suit locks: no retries, contexts heeded, timeouts of the order of the
// node timeout, which follows from the TTL among opts. It talks to nobody; the caller closes the clients. URLs are as in
// redis.ParseURL: "redis://user:password@host:6379/0", "rediss://…" for TLS. The error matches ErrInvalid, names every
// fault of URLs and options, and nothing of what an unreadable URL contains.
func Dial(urls []string, opts ...Option) ([]redis.UniversalClient, error) {
	p, err := defaults().with(opts).policy(len(urls))
	faults := []error{err}
	clients := make([]redis.UniversalClient, 0, len(urls))
	for i, address := range urls {
		o, err := redis.ParseURL(address)
		if err != nil {
			// What is wrong with it may be a part of a password, so the URL's own error stays unsaid.
			faults = append(faults, fmt.Errorf("node %d: not a URL as redis.ParseURL reads it, such as rediss://user:password@host:6379/0", i))
			continue
		}
		o.MaxRetries, o.DialerRetries, o.ContextTimeoutEnabled = -1, 1, true
		o.DialTimeout, o.ReadTimeout, o.WriteTimeout = p.nodeTimeout, p.nodeTimeout, p.nodeTimeout
		o.Dialer = quietDialer(redis.NewDialer(o))
		// With a type of endpoint, go-redis v9.22 does not resolve the host, which it does otherwise although the mode is off.
		o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled, EndpointType: maintnotifications.EndpointTypeNone}
		clients = append(clients, redis.NewClient(o))
	}
	if err := errors.Join(faults...); err != nil {
		return nil, errors.Join(fmt.Errorf("lockkit: %w: %w", ErrInvalid, err), closeClients(clients))
	}
	return clients, nil
}
