package cronlock

import (
	"context"
	"time"
)

// A Run describes the run that a context belongs to.
type Run struct {
	Job          string
	Tick         time.Time // the instant that the schedule names, in UTC; zero for a run by hand
	Previous     time.Time // the last earlier tick known to have completed without an error; zero if there is none
	Next         time.Time // the tick that follows; zero if there is none
	Attempt      int       // 1 for the first start of the tick, more only with AtLeastOnce; 0 for a run by hand
	FencingToken uint64    // greater than the tokens of all earlier runs of the job
}

type runKey struct{}

// NewContext returns a context that belongs to r, for the unit test of a function that calls [FromContext]. It holds no
// lease.
func NewContext(ctx context.Context, r Run) context.Context {
	return context.WithValue(ctx, runKey{}, r)
}

// FromContext returns the run that ctx belongs to. core.FromContext returns its lease.
func FromContext(ctx context.Context) (Run, bool) {
	r, ok := ctx.Value(runKey{}).(Run)
	return r, ok
}
