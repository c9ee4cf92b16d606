package main

import (
	"cmp"
	"fmt"
	"slices"
)

// tooMany counts the holders of each semaphore at a time, regardless of their slots. It returns the first violation before
// until, or "". The history checks that no slot has two holders, as for other keys.
func (j *judge) tooMany(until float64) string {
	type change struct {
		at float64
		by int // holders
	}
	changes := map[string][]change{}
	for _, h := range j.holds {
		if h.limited == "" || h.at > until {
			continue
		}
		changes[h.limited] = append(changes[h.limited], change{h.at, 1})
		if end, ok := h.over(until); ok {
			changes[h.limited] = append(changes[h.limited], change{max(end, h.at), -1})
		}
	}

	for key, all := range changes {
		// A hold that ends at the instant at which another begins does not overlap with it.
		slices.SortStableFunc(all, func(a, b change) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.by, b.by)) })
		holders := 0
		for _, c := range all {
			holders += c.by
			if holders > permits {
				return fmt.Sprintf("too many holders: %d of %s at a time, which has %d permits", holders, key, permits)
			}
		}
	}
	return ""
}
