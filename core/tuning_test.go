package core

import "time"

// What follows from the TTL, and tests set apart.

// tuning is an option that changes what follows from the TTL, after those before it.
func tuning(change func(*timing)) callOption {
	return func(o *options) {
		before := o.tune
		o.tune = func(t *timing) {
			if before != nil {
				before(t)
			}
			change(t)
		}
	}
}

func withDrift(fraction float64) CallOption { return tuning(func(t *timing) { t.drift = fraction }) }

func withRenewEvery(d time.Duration) CallOption { return tuning(func(t *timing) { t.renewEvery = d }) }

func withNodeTimeout(d time.Duration) CallOption {
	return tuning(func(t *timing) { t.nodeTimeout = d })
}

func withRetryDelay(min, max time.Duration) CallOption {
	return tuning(func(t *timing) { t.retryMin, t.retryMax = min, max })
}

// unrenewed leaves leases to run out.
var unrenewed = withRenewEvery(time.Hour)
