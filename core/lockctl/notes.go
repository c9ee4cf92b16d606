package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/lockkit/lockkit/core"
)

// notes are what somebody should know who looks at a key: in what its nodes disagree, and what comes of it.
func (s *keyState) notes() (notes []string) {
	note := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	s.noteSilence(note)
	s.noteLeases(note)
	if some := s.which(func(n *core.KeyOnNode) bool { return n.Record != nil }); len(some) > 0 && s.Record == nil && s.State != stateUnknown {
		note("A completion record is on %s only. It counts once a quorum has it: who asks for the key next settles that.", nodeList(some))
	}
	if s.State == stateFree && !s.Known {
		note("lockctl ls lists the keys that are held. A key that an adapter made is given by its parts, lockctl show --parts …: docs/troubleshooting.md has those of each adapter.")
	}
	for _, n := range s.Nodes {
		if heard(&n) && max(n.Skew, -n.Skew) > 500*time.Millisecond+n.Latency {
			note("The clock of node %d is %s this machine's.", n.Node, apart(n.Skew))
		}
	}
	return notes
}

func (s *keyState) noteSilence(note func(string, ...any)) {
	switch mute := s.which(silent); {
	case len(mute) == 0:
	case 2*len(mute) >= len(s.Nodes):
		note("With %s silent lockctl has no quorum. If services have none either, no key is granted, and holders lose theirs at the end of the TTL. lockctl doctor says what is wrong.", nodeList(mute))
	default:
		note("Without %s the others are still a quorum. lockctl doctor says what is wrong.", nodeList(mute))
	}
	if s.which(denied) != nil {
		note("%s", askForRights)
	}
}

func (s *keyState) noteLeases(note func(string, ...any)) {
	if s.Holder == nil {
		if some := s.which(hasLease); len(some) > 0 && s.State == statePartial {
			note("A lease on %s only: it is just being granted or given back, or its holder got no quorum. It ends by itself within %s.", nodeList(some), brief(s.longest()))
		}
		return
	}
	mine := func(n *core.KeyOnNode) bool { return n.Holder != nil && n.Holder.Attempt == s.Holder.Attempt }
	if without := s.which(func(n *core.KeyOnNode) bool { return heard(n) && n.Holder == nil }); len(without) > 0 {
		note("The holder's lease is not on %s: it was not needed there, or the node lost its memory. A renewal brings it back.", nodeList(without))
	}
	if others := s.which(func(n *core.KeyOnNode) bool { return n.Holder != nil && !mine(n) }); len(others) > 0 {
		note("On %s another process has a lease: a request for the key is granted by too few nodes, and taken back.", nodeList(others))
	}
	if s.Holder.Token == 0 {
		var tokens []string
		for _, n := range s.Nodes {
			if mine(&n) {
				tokens = append(tokens, fmt.Sprint(n.Holder.Token))
			}
		}
		note("The nodes do not agree on the fencing token (%s): until the first renewal a node's may be smaller than the holder's, and where others were granted the key meanwhile it is greater. lockctl release takes any of them.", strings.Join(tokens, ", "))
	}
	if s.Record != nil {
		note("It is also recorded as completed, with token %d.", s.Record.Token)
	}
}

// askForRights is what to do where a node denies what lockctl asks for. Doctor finds nothing wrong then: services need less.
const askForRights = "lockctl needs the rights of the operator, which are more than those of the services: see ACL in docs/operations.md."

// longest is when the last lease of a key ends.
func (s *keyState) longest() (d time.Duration) {
	for _, n := range s.Nodes {
		if n.Verdict == core.VerdictHeld {
			d = max(d, n.Rest)
		}
	}
	return d
}

// apart is a difference of clocks in words.
func apart(d time.Duration) string {
	if d < 0 {
		return brief(-d) + " behind"
	}
	return brief(d) + " ahead of"
}
