package core

import "time"

// What follows from the other options, and tests set apart.

func withDrift(fraction float64) CallOption {
	return callOption(func(c *config) { c.drift = fraction })
}

func withRenewEvery(d time.Duration) CallOption {
	return callOption(func(c *config) { c.renewEvery = d })
}

func withNodeTimeout(d time.Duration) CallOption {
	return callOption(func(c *config) { c.nodeTimeout = d })
}

func withRetryDelay(min, max time.Duration) CallOption {
	return callOption(func(c *config) { c.retryMin, c.retryMax = min, max })
}
