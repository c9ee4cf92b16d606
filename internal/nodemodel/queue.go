package nodemodel

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// LastHoldEnded returns when the last hold ended here: when its lease ran out, unless it was ended before.
func (k Key) LastHoldEnded() int64 {
	return max(k.HoldEnded, k.Expiry)
}

// remark ends the mark if no call waits any more.
func (k Key) remark() Key {
	if len(k.Queue) == 0 {
		k.Marked = false
		k.HoldEnded = 0
	}

	return k
}

// join adds the call to the queue, if it waits, and returns its place, from 1. If its attempt has ended, the
// call is not added.
func (k Key) join(q Request, at instant) (Key, int) {
	w := q.Acquire.Wait
	if w.Member == "" {
		return k, 0
	}

	of := func(other Wait) bool { return other.Member == w.Member }
	_, over := k.Ends[q.Attempt]
	if over && !slices.ContainsFunc(k.Queue, of) {
		if len(k.Queue) > 0 {
			k.QueueDies = at.µs + at.MaxTTL*1000
		}
		return k, 0
	}

	k = k.add(w)
	k.QueueDies = at.µs + at.MaxTTL*1000
	k.Marked = true
	return k, 1 + slices.IndexFunc(k.Queue, of)
}

// add adds a wait, once.
func (k Key) add(w Wait) Key {
	k = k.leave(w.Member)
	k.Queue = append(k.Queue, w)
	slices.SortFunc(k.Queue, func(a, b Wait) int {
		return cmp.Or(cmp.Compare(a.Ticket, b.Ticket), strings.Compare(a.Member, b.Member))
	})
	return k
}

// leave removes a wait.
func (k Key) leave(member string) Key {
	k.Queue = slices.DeleteFunc(slices.Clone(k.Queue), func(w Wait) bool { return w.Member == member })
	return k
}

// wake returns the notices for the first two waits.
func (k Key) wake() (notices []Notice) {
	for i, w := range k.Queue[:min(2, len(k.Queue))] {
		notices = append(notices, w.notice(i+1))
	}

	return notices
}

// notice returns the message that tells the call its place.
func (w Wait) notice(place int) Notice {
	how, rest, _ := strings.Cut(w.Member, " ")
	channel, name, _ := strings.Cut(rest, " ")
	return Notice{Sharded: how == "S", Channel: channel, Text: fmt.Sprintf("%d %s", place, name)}
}
