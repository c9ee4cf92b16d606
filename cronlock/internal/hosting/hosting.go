// Package hosting gives package gocronlock access to the steps of a run of package cronlock. A scheduler that calls
// listeners between the lock and the run needs the steps one by one. They are internal, because RunDue is enough for
// all other hosts.
package hosting

import "context"

// A Claim is the right to start a run of a job. Nothing is recorded yet.
type Claim interface {
	// Call records the start, calls the job's function, and returns its error. If the run cannot start any more, the
	// error is a *cronlock.Error.
	Call() error
	// End releases the claim. It must be called in any case. After Call, it first records the end of the run. Without
	// Call, the tick stays free for other replicas.
	End() error
}

// A Host runs a job when the engine asks it to. Its methods are called on goroutines of the engine.
type Host interface {
	// RequestCall makes the host claim the job once, soon. It does not wait for the claim. The engine calls it again
	// after a few seconds if a tick must still be started.
	RequestCall()
	// IsRemoved reports whether the host has removed the job. The engine then removes it, too.
	IsRemoved() bool
}

// Package cronlock sets these. The job is a *cronlock.Job, and the option a cronlock.JobOption.
var (
	// NewClaim acquires the lease of a job if a tick must start now, or in any case if byHand is true. The errors are
	// the same as for RunDue.
	NewClaim func(ctx context.Context, job any, byHand bool) (Claim, error)
	// WithHost returns the option that makes a host run the job.
	WithHost func(Host) any
)
