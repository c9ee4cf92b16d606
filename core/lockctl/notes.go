package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/lockkit/lockkit/core"
)

// notes returns remarks on a key for the operator: on what its nodes disagree, and what follows from that.
func (s *keyState) notes() (notes []string) {
	add := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	s.addSilenceNotes(add)
	s.addLeaseNotes(add)
	if nodes := s.nodesWhere(func(n *core.KeyOnNode) bool { return n.Record != nil }); len(nodes) > 0 && s.Record == nil && s.State != stateUnknown {
		add("A completion record is on %s only. It counts once a quorum has it: who asks for the key next settles that.", nodeList(nodes))
	}
	if s.State == stateFree && !s.Known {
		add("lockctl ls lists the keys that are held. A key that an adapter made is given by its parts, lockctl show --parts …: docs/troubleshooting.md has those of each adapter.")
	}
	for _, n := range s.Nodes {
		if hasAnswered(&n) && max(n.Skew, -n.Skew) > 500*time.Millisecond+n.Latency {
			add("The clock of node %d is %s this machine's.", n.Node, formatSkew(n.Skew))
		}
	}
	return notes
}

func (s *keyState) addSilenceNotes(add func(string, ...any)) {
	switch silent := s.nodesWhere(isSilent); {
	case len(silent) == 0:
	case 2*len(silent) >= len(s.Nodes):
		add("With %s silent lockctl has no quorum. If services have none either, no key is granted, and holders lose theirs at the end of the TTL. lockctl doctor says what is wrong.", nodeList(silent))
	default:
		add("Without %s the others are still a quorum. lockctl doctor says what is wrong.", nodeList(silent))
	}
	if s.nodesWhere(isDenied) != nil {
		add("%s", operatorRightsHint)
	}
}

func (s *keyState) addLeaseNotes(add func(string, ...any)) {
	if s.Holder == nil {
		if nodes := s.nodesWhere(hasLease); len(nodes) > 0 && s.State == statePartial {
			add("A lease on %s only: it is just being granted or given back, or its holder got no quorum. It ends by itself within %s.", nodeList(nodes), formatDuration(s.longestLease()))
		}
		return
	}
	isHolders := func(n *core.KeyOnNode) bool { return n.Holder != nil && n.Holder.Attempt == s.Holder.Attempt }
	if without := s.nodesWhere(func(n *core.KeyOnNode) bool { return hasAnswered(n) && n.Holder == nil }); len(without) > 0 {
		add("The holder's lease is not on %s: it was not needed there, or the node lost its memory. A renewal brings it back.", nodeList(without))
	}
	if others := s.nodesWhere(func(n *core.KeyOnNode) bool { return n.Holder != nil && !isHolders(n) }); len(others) > 0 {
		add("On %s another process has a lease: a request for the key is granted by too few nodes, and taken back.", nodeList(others))
	}
	if s.Holder.Token == 0 {
		var tokens []string
		for _, n := range s.Nodes {
			if isHolders(&n) {
				tokens = append(tokens, fmt.Sprint(n.Holder.Token))
			}
		}
		add("The nodes do not agree on the fencing token (%s): until the first renewal a node's may be smaller than the holder's, and where others were granted the key meanwhile it is greater. lockctl release takes any of them.", strings.Join(tokens, ", "))
	}
	if s.Record != nil {
		add("It is also recorded as completed, with token %d.", s.Record.Token)
	}
}

// operatorRightsHint is the advice for a node that denies lockctl a command. Doctor finds no problem then, because
// services need fewer rights.
const operatorRightsHint = "lockctl needs the rights of the operator, which are more than those of the services: see ACL in docs/operations.md."

// longestLease returns the time until the last lease or cooldown on the key ends.
func (s *keyState) longestLease() (d time.Duration) {
	for _, n := range s.Nodes {
		if n.Verdict == core.VerdictHeld {
			d = max(d, n.Rest)
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
