// Package river runs one job of River per key at a time. Copy lock.go.
package river

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/lockkit/lockkit/core"
)

// onePerKey runs one job per key at a time, over all clients. A job whose key is held is snoozed, which costs no attempt. So
// is one that meets an outage of the nodes for locks. Jobs with the key "" are not locked.
func onePerKey(locker *core.Locker, key func(job *rivertype.JobRow) string) rivertype.WorkerMiddleware {
	return river.WorkerMiddlewareFunc(func(ctx context.Context, job *rivertype.JobRow, doInner func(context.Context) error) error {
		key := key(job)
		if key == "" {
			return doInner(ctx)
		}

		began := false // the job may itself return an error that matches core.ErrHeld
		err := locker.TryDo(ctx, key, func(ctx context.Context) error {
			began = true
			return doInner(ctx) // ctx ends if the lease is lost
		})
		if !began && (errors.Is(err, core.ErrHeld) || errors.Is(err, core.ErrUnavailable)) {
			return river.JobSnooze(time.Second + rand.N(time.Second)) // so that another client may be first to take it
		}
		return err
	})
}
