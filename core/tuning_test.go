package core

import "time"

// This file has options for values that otherwise follow from the TTL.

// tuning returns an option that changes these values, after the tuning options before it.
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

// unrenewed keeps leases from being renewed, so they run out.
var unrenewed = withRenewEvery(time.Hour)
