package node

import "github.com/lockkit/lockkit/core/internal/wire"

// A voting is what the log has said of whether a node votes. Each change is logged once, with the reason. A connection that is
// lost now and then is no change.
type voting struct {
	failures int          // in a row
	now      wire.Verdict // why the node does not vote, as logged; Granted = it votes
}

// see notes a verdict, and reports whether it is news. proof: only a node that votes answers so to this script.
func (s *voting) see(v wire.Verdict, proof bool) (news bool) {
	switch v {
	case wire.Failed:
		s.failures++
		if s.failures < MaxFailures {
			return false
		}
	case wire.Quarantined, wire.ClockSkewed, wire.Replica, wire.Unguarded:
		s.failures = 0
	default:
		s.failures = 0
		if !proof {
			return false
		}
		v = wire.Granted
	}
	news = s.now != v
	s.now = v
	return news
}
