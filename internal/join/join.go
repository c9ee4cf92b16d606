// Package join makes contexts that end when any of several contexts ends.
package join

import (
	"context"
	"time"
)

// Contexts returns a context with the values of ctx that ends when ctx or any of the others ends. Its cause is the
// cause of the first context whose end is noticed. Its deadline is the earliest of all deadlines; if the context ends
// at its deadline, the error is context.DeadlineExceeded. To make work stop when a lease ends, pass lease.Context() as
// one of the others.
//
// Err and Done of the context call Err of all contexts. The context of a lease reads the clock, so after a pause of the
// process the joint context ends at once if the lease has run out.
//
// Call stop when the work is over. It does not wait.
func Contexts(ctx context.Context, others ...context.Context) (joint context.Context, stop func()) {
	j := &jointContext{}
	j.parents = append(append(j.parentsRoom[:0], ctx), others...)
	j.stopWatches = j.stopWatchesRoom[:0]

	child, cancel := context.WithCancelCause(ctx)
	j.Context = child
	j.cancel = cancel
	if at, limited := j.Deadline(); limited {
		withDeadline, cancelDeadline := context.WithDeadline(child, at)
		j.Context = withDeadline
		j.cancelDeadline = cancelDeadline
	}

	for _, other := range others {
		j.stopWatches = append(j.stopWatches, context.AfterFunc(other, func() { j.endWith(other) }))
	}
	return j, j.stop
}

// A jointContext ends when any of its parents ends.
type jointContext struct {
	context.Context // child of the first parent; cancelled when the end of another one is noticed
	cancel          context.CancelCauseFunc
	cancelDeadline  context.CancelFunc // nil if no parent has a deadline
	parents         []context.Context
	stopWatches     []func() bool // one for each parent but the first

	// Arrays for the two slices, so that there is one allocation for up to three parents. Each request and each task
	// joins contexts, usually two.
	parentsRoom     [3]context.Context
	stopWatchesRoom [2]func() bool
}

// stop ends the context, and stops watching the parents.
func (j *jointContext) stop() {
	for _, stop := range j.stopWatches {
		stop()
	}

	if j.cancelDeadline != nil {
		j.cancelDeadline()
	}
	j.cancel(nil)
}

// endWith ends the context with the cause of a parent that has ended. If the parent ended at its deadline, endWith does
// nothing: the context is about to end at the same deadline, with the right error.
func (j *jointContext) endWith(parent context.Context) {
	if endedAtDeadline(parent) {
		return
	}
	j.cancel(context.Cause(parent))
}

// endedAtDeadline reports whether ctx has ended because its deadline has come.
func endedAtDeadline(ctx context.Context) bool {
	at, limited := ctx.Deadline()
	return limited && ctx.Err() == context.DeadlineExceeded && !time.Now().Before(at)
}

// Err calls Err of all parents, because the context of a lease reads the clock.
func (j *jointContext) Err() error {
	if err := j.Context.Err(); err != nil {
		return err
	}

	for _, parent := range j.parents {
		err := parent.Err()
		if err == nil {
			continue
		}

		j.endWith(parent)
		if j.Context.Err() == nil {
			// The deadline has come, and the timer of the context has not fired yet.
			return err
		}
		break
	}
	return j.Context.Err()
}

// Done calls Err of all parents first, for the same reason as Err.
func (j *jointContext) Done() <-chan struct{} {
	j.Err()
	return j.Context.Done()
}

// Deadline returns the earliest deadline of the parents.
func (j *jointContext) Deadline() (earliest time.Time, limited bool) {
	for _, parent := range j.parents {
		at, ok := parent.Deadline()
		if !ok {
			continue
		}

		if !limited || at.Before(earliest) {
			earliest = at
			limited = true
		}
	}
	return earliest, limited
}
