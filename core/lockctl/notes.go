package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/lockkit/lockkit/core"
)

// remarks are sentences about a key for the operator.
type remarks []string

func (r *remarks) add(format string, args ...any) { *r = append(*r, fmt.Sprintf(format, args...)) }

// notes returns remarks on a key for the operator: on what its nodes disagree, and what follows from that.
func (s *keyState) notes() []string {
	var r remarks
	s.addSilenceNotes(&r)
	s.addLeaseNotes(&r)
	s.addRecordNote(&r)

	if s.State == stateFree && !s.Known {
		r.add("lockctl ls lists the keys that are held. A key that an adapter made is given by its parts, " +
			"lockctl show --parts …: docs/troubleshooting.md has those of each adapter.")
	}

	for _, n := range s.Nodes {
		if hasAnswered(&n) && isSkewed(&n) {
			r.add("The clock of node %d is %s this machine's.", n.Node, formatSkew(n.Skew))
		}
	}
	return r
}

// addSilenceNotes adds remarks on nodes that did not answer.
func (s *keyState) addSilenceNotes(r *remarks) {
	silent := s.nodesWhere(isSilent)
	switch {
	case len(silent) == 0:
	case 2*len(silent) >= len(s.Nodes):
		r.add("With %s silent lockctl has no quorum. If services have none either, no key is granted, "+
			"and holders lose theirs at the end of the TTL. lockctl doctor says what is wrong.", nodeList(silent))
	default:
		r.add("Without %s the others are still a quorum. lockctl doctor says what is wrong.", nodeList(silent))
	}

	if s.nodesWhere(isDenied) != nil {
		r.add("%s", operatorRightsHint)
	}
}

// addLeaseNotes adds remarks on leases that not all nodes have, or not alike.
func (s *keyState) addLeaseNotes(r *remarks) {
	if s.Holder == nil {
		nodes := s.nodesWhere(hasLease)
		if len(nodes) > 0 && s.State == statePartial {
			r.add("A lease on %s only: it is just being granted or given back, or its holder got no quorum. "+
				"It ends by itself within %s.", nodeList(nodes), formatDuration(s.longestLease()))
		}
		return
	}

	// A lease needs only a quorum.
	if without := s.nodesWhere(answeredWithoutLease); len(without) > 0 {
		r.add("The holder's lease is not on %s: it was not needed there, or the node lost its memory. "+
			"A renewal brings it back.", nodeList(without))
	}

	// The holder has a quorum, so the other process cannot get one.
	if others := s.nodesWhere(s.hasOtherLease); len(others) > 0 {
		r.add("On %s another process has a lease: a request for the key is granted by too few nodes, and taken back.",
			nodeList(others))
	}

	// A quorum has the lease, but with different tokens.
	if s.Holder.Token == 0 {
		r.add("The nodes do not agree on the fencing token (%s): until the first renewal a node's may be smaller than "+
			"the holder's, and where others were granted the key meanwhile it is greater. "+
			"lockctl release takes any of them.", strings.Join(s.tokens(), ", "))
	}

	if s.Record != nil {
		r.add("It is also recorded as completed, with token %d.", s.Record.Token)
	}
}

// addRecordNote adds a remark on a completion record that only some nodes have.
func (s *keyState) addRecordNote(r *remarks) {
	nodes := s.nodesWhere(func(n *core.KeyOnNode) bool { return n.Record != nil })
	isPartial := len(nodes) > 0 && s.Record == nil
	if isPartial && s.State != stateUnknown {
		r.add("A completion record is on %s only. It counts once a quorum has it: who asks for the key next settles that.",
			nodeList(nodes))
	}
}

// tokens returns the fencing tokens of the holder's lease on the nodes that have it.
func (s *keyState) tokens() (tokens []string) {
	for _, n := range s.Nodes {
		if s.hasHoldersLease(&n) {
			tokens = append(tokens, fmt.Sprint(n.Holder.Token))
		}
	}
	return tokens
}

func answeredWithoutLease(n *core.KeyOnNode) bool { return hasAnswered(n) && !hasLease(n) }

// hasOtherLease reports whether the node has a lease that is not the holder's.
func (s *keyState) hasOtherLease(n *core.KeyOnNode) bool { return hasLease(n) && !s.hasHoldersLease(n) }

// isSkewed reports whether the node's clock differs from this machine's by more than half a second. The measured
// difference includes the delay of the request.
func isSkewed(n *core.KeyOnNode) bool { return n.Skew.Abs() > 500*time.Millisecond+n.Latency }

// operatorRightsHint is the advice for a node that denies lockctl a command. Doctor finds no problem then, because
// services need fewer rights.
const operatorRightsHint = "lockctl needs the rights of the operator, which are more than those of the services: " +
	"see ACL in docs/operations.md."

// longestLease returns the time until the last lease or cooldown on the key ends.
func (s *keyState) longestLease() (d time.Duration) {
	for _, n := range s.Nodes {
		if n.Verdict == core.VerdictHeld {
			d = max(d, n.Remaining)
		}
	}
	return d
}

// formatSkew describes the difference of a node's clock from this machine's.
func formatSkew(d time.Duration) string {
	if d < 0 {
		return formatDuration(-d) + " behind"
	}
	return formatDuration(d) + " ahead of"
}
