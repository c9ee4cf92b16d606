// Package hosting is how package gocronlock runs the jobs of package cronlock. A scheduler that calls listeners between the
// lock and the run needs the steps of a run one by one. They are internal, because with all other hosts RunDue is enough.
package hosting

import "context"

// A Claim is the right to start a run of a job. Nothing is recorded yet.
type Claim interface {
	// Call records the start, calls the job's function, and returns its error. If the run cannot start any more, the error
	// is a *cronlock.Error.
	Call() error
	// End gives the claim back, and must be called in any case. After Call, it first records the end of the run. Without
	// Call, the tick stays free for other replicas.
	End() error
}

// A Host runs a job when the engine asks it to. Its methods are called on goroutines of the engine.
type Host interface {
	// Ask makes the host claim the job once, soon. It does not wait for that. The engine asks again after a few seconds if
	// there is still something to start.
	RequestCall()
	// Gone reports whether the host has dropped the job for good. The job is then removed.
	IsRemoved() bool
}

// Package cronlock sets these. The job is a *cronlock.Job, and the option a cronlock.JobOption.
var (
	// Take takes the lease of a job if a tick is to start now, or, by hand, in any case. The errors are those of RunDue.
	NewClaim func(ctx context.Context, job any, byHand bool) (Claim, error)
	// With makes a host run the job.
	WithHost func(Host) any
)
