package main

import (
	"fmt"
	"slices"
	"time"
)

// The referee judges what holds in every scene, whatever the fault. It sees who works when, by the one clock of the machine,
// and is as a store that refuses a fencing token smaller than the largest that it has seen.
type referee struct {
	alone map[string]bool // keys of a single node without the restart guard, which may have two holders
	ticks bool            // records of starts are kept, so that no tick starts too often
}

// A trust is a lease, for as long as its holder was seen to have it.
type trust struct {
	process, key string
	token        uint64
	from, until  time.Time // the context was live at both
}

// trusts puts leases together from what their holders said. A context that was live at two instants was so in between.
func trusts(events []event) []*trust {
	type id struct {
		process, key string
		token        uint64
	}
	var all []*trust
	known := map[id]*trust{}
	for _, e := range events {
		if e.Kind != isGranted && e.Kind != isLive {
			continue
		}
		who := id{e.Process, e.Key, e.Token}
		t := known[who]
		if t == nil {
			t = &trust{e.Process, e.Key, e.Token, e.At, e.At}
			known[who] = t
			all = append(all, t)
		}
		t.until = e.At
	}
	return all
}

// violations returns what must never happen.
func (r referee) violations(events []event) []string {
	return slices.Concat(r.overlaps(trusts(events)), r.store(events), r.starts(events))
}

// overlaps: no two leases on a key are live at a time, and a later one has the greater token.
func (r referee) overlaps(all []*trust) (found []string) {
	byKey := map[string][]*trust{}
	for _, t := range all {
		byKey[t.key] = append(byKey[t.key], t)
	}
	for key, leases := range byKey {
		if r.alone[key] {
			continue
		}
		slices.SortFunc(leases, func(a, b *trust) int { return a.from.Compare(b.from) })
		for i, later := range leases {
			for _, before := range leases[:i] {
				if before.until.After(later.from) {
					found = append(found, fmt.Sprintf("two holders of %s: %s (token %d) for %s beside %s (token %d)",
						key, before.process, before.token, seconds(before.until.Sub(later.from)), later.process, later.token))
				}
				if later.token <= before.token {
					found = append(found, fmt.Sprintf("token %d of %s came after %d", later.token, key, before.token))
				}
			}
		}
	}
	return found
}

// store: a holder whose context is live is not refused. If it is, its token went back, or another holder was beside it.
func (r referee) store(events []event) (found []string) {
	for _, w := range writes(events) {
		if w.live && !w.accepted && !r.alone[w.Key] {
			found = append(found, fmt.Sprintf("the store refused %s, the holder of %s with token %d, after token %d", w.Process, w.Key, w.Token, w.latest))
		}
	}
	return found
}

// A written event is a write that the store has judged by its token.
type written struct {
	event
	live     bool // the holder looked at its context right before
	accepted bool
	latest   uint64 // the largest token that the store had seen
}

// writes plays the store: each look at a live lease is also a write, with the lease's token.
func writes(events []event) (all []written) {
	latest := map[string]uint64{}
	for _, e := range events {
		if e.Kind != isLive && e.Kind != isWrite {
			continue
		}
		all = append(all, written{e, e.Kind == isLive, e.Token >= latest[e.Key], latest[e.Key]})
		latest[e.Key] = max(latest[e.Key], e.Token)
	}
	return all
}

// starts: no tick is started more often than its job allows.
func (r referee) starts(events []event) (found []string) {
	type tick struct {
		job string
		at  int64
	}
	starts := map[tick]int{}
	for _, e := range events {
		if e.Kind != isWork || e.Tick.IsZero() {
			continue
		}
		of := tick{e.Op, e.Tick.UnixNano()}
		starts[of]++
		if most := max(1, e.Status); r.ticks && starts[of] > most {
			found = append(found, fmt.Sprintf("tick %s of %s was started %d times", e.Tick.Format(time.TimeOnly), e.Op, starts[of]))
		}
	}
	return found
}
