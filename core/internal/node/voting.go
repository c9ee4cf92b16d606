package node

import "github.com/lockkit/lockkit/core/internal/wire"

// A voting is what the log has said of whether a node votes. Each change is logged once, with the reason. A connection that is
// lost now and then is no change.
type voting struct {
	failures int          // in a row
	now      wire.Verdict // why the node does not vote, as logged; Granted = it votes
	proven   bool         // the last answer that told, told that it votes
}

// proves reports whether only a node that votes answers a request so. A renewal that it does not simply grant (it was
// brought back, or its token was passed) may be granted in a quarantine, too.
func proves(op wire.Op, v wire.Verdict) bool {
	return op == wire.OpAcquire || op == wire.OpTouch || op == wire.OpRenew && v == wire.Granted
}

// see notes a verdict, and reports whether it is news. proof: only a node that votes answers so to this script.
func (s *voting) see(v wire.Verdict, proof bool) (news bool) {
	switch v {
	case wire.Failed:
		s.proven = false
		s.failures++
		if s.failures < MaxFailures {
			return false
		}
	case wire.Quarantined, wire.ClockSkewed, wire.Replica, wire.Unguarded:
		s.proven = false
		s.failures = 0
	default:
		s.failures = 0
		if !proof {
			return false
		}
		v, s.proven = wire.Granted, true
	}
	news = s.now != v
	s.now = v
	return news
}
