package core

import "time"

// The arithmetic of trust. Its functions are pure, so that they can be fuzzed.

const (
	// roundTrip allows for the millisecond resolution of Redis expiries, at both ends (Redlock's constant).
	roundTrip = 2 * time.Millisecond
	// clockDrift is the fraction of a lease by which this machine's clock may be too slow.
	clockDrift = 0.10
	// maxRetention keeps the end of a record within the dates that a reply can represent.
	maxRetention = 10 * 365 * 24 * time.Hour
	// defaultWindow is wide enough for NTP and slow requests. It does not depend on the TTL, because all processes
	// must use the same window.
	defaultWindow = 500 * time.Millisecond
)

// validity returns how long a lease may be trusted, from the moment its request was sent: the TTL less the drift of the
// client's clock, and less the difference of clocks that the clock window allows.
func validity(ttl time.Duration, drift float64, window time.Duration) time.Duration {
	v := ttl - time.Duration(float64(ttl)*drift) - roundTrip
	if window > 0 {
		v -= 2*window + 2*clientSkew(window)
	}
	return v
}

// clientSkew returns how far the wall clock of each client may be from true time.
func clientSkew(window time.Duration) time.Duration { return window / 10 }

// defaultNodeTimeout returns the node timeout for a TTL: long for a healthy node, short compared with the lease.
func defaultNodeTimeout(ttl time.Duration) time.Duration {
	return min(max(ttl/10, 50*time.Millisecond), time.Second)
}

// cancelMargin returns how long before the end of validity the context ends, so that the holder has stopped by then.
func cancelMargin(ttl time.Duration) time.Duration {
	return max(50*time.Millisecond, ttl/50)
}

// tombstoneTTL returns how long a node remembers that an attempt is over: until the clock window rejects its requests.
// Without a window, this is longer than requests can plausibly be in flight.
func tombstoneTTL(window, nodeTimeout, maxTTL time.Duration) time.Duration {
	if window > 0 {
		return 2*window + 2*nodeTimeout
	}
	return 4 * maxTTL
}
