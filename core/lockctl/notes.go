package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
)

// notes are what somebody should know who looks at a key: in what its nodes disagree, and what comes of it.
func (s *keyState) notes() (notes []string) {
	note := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	which := func(is func(*onNode) bool) (nodes []int) {
		for i := range s.Nodes {
			if is(&s.Nodes[i]) {
				nodes = append(nodes, i)
			}
		}
		return nodes
	}
	s.noteSilence(note, which)
	s.noteLeases(note, which)
	if some := which(func(n *onNode) bool { return n.Record != nil }); len(some) > 0 && s.Record == nil && s.State != stateUnknown {
		note("A completion record is on %s only. It counts once a quorum has it: who asks for the key next settles that.", nodeList(some))
	}
	if lasting := which(func(n *onNode) bool { return n.There && n.TTL < 0 }); len(lasting) > 0 {
		note("On %s the key has no expiry, which lockkit never does: lockctl leaks says more.", nodeList(lasting))
	}
	for _, n := range s.Nodes {
		if n.There && max(n.Skew, -n.Skew) > 500*time.Millisecond+n.Latency {
			note("The clock of node %d is %s this machine's.", n.Node, apart(n.Skew))
		}
	}
	return notes
}

func (s *keyState) noteSilence(note func(string, ...any), which func(func(*onNode) bool) []int) {
	silent := which(func(n *onNode) bool { return !n.heard() && !n.There })
	switch {
	case len(silent) == 0:
	case s.State == stateUnknown:
		note("With %s silent lockctl has no quorum. If services have none either, nobody can be granted a key, and holders lose theirs at the end of the TTL. lockctl doctor says what is wrong.", nodeList(silent))
	default:
		note("Without %s the others are still a quorum. lockctl doctor says what is wrong.", nodeList(silent))
	}
	if which(func(n *onNode) bool { return n.denied() }) != nil {
		note("%s", askForRights)
	}
	if unread := which(func(n *onNode) bool { return !n.heard() && n.There }); len(unread) > 0 {
		note("On %s the key was not written by this version of lockkit: nobody is granted it there. Do not delete it before you know that no other version holds it.", nodeList(unread))
	}
}

func (s *keyState) noteLeases(note func(string, ...any), which func(func(*onNode) bool) []int) {
	if s.Holder == nil {
		if some := which(func(n *onNode) bool { return n.Holder != nil }); len(some) > 0 && s.State != stateUnknown {
			note("A lease on %s only: it is just being granted or given back, or its holder got no quorum. It ends by itself within %s.", nodeList(some), brief(s.longest()))
		}
		return
	}
	mine := func(n *onNode) bool { return n.Holder != nil && n.Holder.Attempt == s.Holder.Attempt }
	if without := which(func(n *onNode) bool { return n.heard() && n.Holder == nil }); len(without) > 0 {
		note("The holder's lease is not on %s: it was not needed there, or the node lost its memory. A renewal brings it back.", nodeList(without))
	}
	if others := which(func(n *onNode) bool { return n.Holder != nil && !mine(n) }); len(others) > 0 {
		note("On %s somebody else has a lease: who asks for the key gets some nodes, too few, and gives them back.", nodeList(others))
	}
	if s.Holder.Token == 0 {
		var tokens []string
		for _, n := range s.Nodes {
			if mine(&n) {
				tokens = append(tokens, fmt.Sprint(n.Holder.Token))
			}
		}
		note("The nodes do not agree on the fencing token (%s): until the first renewal a node's may be smaller than the holder's. Look again in some seconds.", strings.Join(tokens, ", "))
	}
	if s.Record != nil {
		note("It is also recorded as completed, with token %d.", s.Record.Token)
	}
}

// askForRights is what to do where a node denies what lockctl asks for. Doctor finds nothing wrong then: services need less.
const askForRights = "lockctl needs the rights of the operator, which are more than those of the services: see ACL in docs/operations.md."

// denied reports whether the node refuses this user.
func (n *onNode) denied() bool { return redis.HasErrorPrefix(n.Err, "NOPERM") }

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
