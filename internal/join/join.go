// Package join makes contexts that end with several.
package join

import (
	"context"
	"time"
)

// Contexts returns a context with the values of ctx that ends when ctx does, or any of the others, with the cause of the
// first that is seen to end. Pass lease.Context() for work that is to stop when a lease ends which ctx does not run
// under.
//
// Err and Done of the context look at those of all of them, so that one which joins a lease knows after a pause of the
// process that the lease has run out, as the lease's own context does. Its deadline is the earliest, and what ends at
// it has the error context.DeadlineExceeded. Call stop when the work is over; it waits for nothing.
func Contexts(ctx context.Context, others ...context.Context) (joint context.Context, stop func()) {
	j := &jointContext{}
	j.parents = append(append(j.parentsRoom[:0], ctx), others...)
	j.stopWatches = j.stopWatchesRoom[:0]
	j.Context, j.cancel = context.WithCancelCause(ctx)
	if at, limited := j.Deadline(); limited {
		j.Context, j.cancelDeadline = context.WithDeadline(j.Context, at)
	}
	for _, other := range others {
		j.stopWatches = append(j.stopWatches, context.AfterFunc(other, func() { j.endWith(other) }))
	}
	return j, j.stop
}

// A jointContext ends with each of several.
type jointContext struct {
	context.Context // cancelled by the first of them that is seen to end
	cancel          context.CancelCauseFunc
	cancelDeadline  context.CancelFunc // nil: it has no deadline
	parents         []context.Context
	stopWatches     []func() bool

	// Each request and task joins contexts, and mostly two of them: one allocation holds both lists.
	parentsRoom     [3]context.Context
	stopWatchesRoom [2]func() bool
}

func (j *jointContext) stop() {
	for _, stop := range j.stopWatches {
		stop()
	}
	if j.cancelDeadline != nil {
		j.cancelDeadline()
	}
	j.cancel(nil)
}

// endWith ends the context because that one has, unless it is about to: their deadline has come.
func (j *jointContext) endWith(ctx context.Context) {
	if at, limited := ctx.Deadline(); limited && ctx.Err() == context.DeadlineExceeded && !time.Now().Before(at) {
		return
	}
	j.cancel(context.Cause(ctx))
}

// Err asks all of them, since those of leases look at the clock.
func (j *jointContext) Err() error {
	if err := j.Context.Err(); err != nil {
		return err
	}
	for _, ctx := range j.parents {
		if err := ctx.Err(); err != nil {
			if j.endWith(ctx); j.Context.Err() == nil {
				return err
			}
			break
		}
	}
	return j.Context.Err()
}

// Done asks as Err does.
func (j *jointContext) Done() <-chan struct{} {
	j.Err()
	return j.Context.Done()
}

func (j *jointContext) Deadline() (earliest time.Time, limited bool) {
	for _, ctx := range j.parents {
		if at, ok := ctx.Deadline(); ok && (!limited || at.Before(earliest)) {
			earliest, limited = at, true
		}
	}
	return earliest, limited
}
