package core

import "time"

// The arithmetic of trust. All of it is pure, so that it can be fuzzed.

const (
	// roundTrip pays for the millisecond resolution of Redis expiries, at both ends (Redlock's constant).
	roundTrip = 2 * time.Millisecond
	// clockDrift is by what part of a lease the clock of this machine may be too slow.
	clockDrift = 0.10
	// maxRetention keeps the end of a record a date that every reply can tell.
	maxRetention = 10 * 365 * 24 * time.Hour
	// defaultWindow is wide enough for NTP and slow requests. It does not depend on the TTL, because all
	// processes must have the same.
	defaultWindow = 500 * time.Millisecond
)

// validity is how long a lease may be trusted, from the moment the request was sent, when the nodes were
// told ttl: less the drift of the client's clock, and less what the clock window lets clocks differ.
func validity(ttl time.Duration, drift float64, window time.Duration) time.Duration {
	v := ttl - time.Duration(float64(ttl)*drift) - roundTrip
	if window > 0 {
		v -= 2*window + 2*clientSkew(window)
	}
	return v
}

// clientSkew is by how much the wall clocks of clients are assumed to differ, each from true time.
func clientSkew(window time.Duration) time.Duration { return window / 10 }

// defaultNodeTimeout is long for a healthy node, short beside the lease.
func defaultNodeTimeout(ttl time.Duration) time.Duration {
	return min(max(ttl/10, 50*time.Millisecond), time.Second)
}

// cancelMargin is how much earlier than the end of validity the context ends, so that the holder has
// stopped by then.
func cancelMargin(ttl time.Duration) time.Duration { return max(50*time.Millisecond, ttl/50) }

// tombstoneTTL is how long a node remembers that an attempt is over: until the clock window refuses its
// requests, or, without a window, longer than they can plausibly be under way.
func tombstoneTTL(window, nodeTimeout, maxTTL time.Duration) time.Duration {
	if window > 0 {
		return 2*window + 2*nodeTimeout
	}
	return 4 * maxTTL
}
