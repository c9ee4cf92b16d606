// Package migrate has the code that docs/migrate.md shows: how to lock with other libraries, with lockkit, and with both at
// a time. TestSnippets of internal/docs compares it with the page; the tests here run it.
package migrate

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
)

// errBusy: another holder has the lock.
var errBusy = errors.New("somebody else is at it")

// pay is the work that must not be done by two at a time.
var pay func(ctx context.Context, invoice int) error

func open(client redis.UniversalClient) (*core.Locker, error) {
	locker, err := core.New([]redis.UniversalClient{client}) // with a client of its own
	if err != nil {
		return nil, err // names what is wrong with the node, and how to fix it
	}
	return locker, nil
}
