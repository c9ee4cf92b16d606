package nemesis

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// A heldKey is a key that a process holds for a while: one of a set, a slot of a semaphore, or a key alone.
type heldKey struct {
	by        string
	call      int
	key       string
	semaphore string
	token     uint64
	from, to  int // milliseconds
}

// at returns a time of a heldKey.
func at(ms int) time.Time { return time.Date(2026, 1, 1, 0, 0, 0, ms*int(time.Millisecond), time.UTC) }

// logged returns what the client reports.
func (h heldKey) logged() []event {
	return []event{{
		At: at(h.from), Kind: isGranted, By: h.by, Call: h.call, Key: h.key, Semaphore: h.semaphore, Token: h.token,
		Asked: at(h.from - 5), Until: at(h.to),
	}}
}

// seen returns what the referee writes into its book.
func (h heldKey) seen() (events []event) {
	for _, ms := range []int{h.from, h.to} {
		events = append(events, event{
			At: at(ms + 1), Kind: isWrote, By: h.by, Key: h.key, Semaphore: h.semaphore, Token: h.token, Asked: at(ms),
		})
	}
	return events
}

// heldTogether has a set beside a single key of the same keys, and three permits for a key, which a holder without a permit
// then holds.
func heldTogether() []heldKey {
	return []heldKey{
		{by: "a", call: 1, key: "x", token: 1, from: 0, to: 100},
		{by: "a", call: 1, key: "y", token: 7, from: 0, to: 100},
		{by: "b", call: 1, key: "y", token: 8, from: 110, to: 200},
		{by: "a", call: 2, key: "api", semaphore: "api", token: 5, from: 0, to: 100},
		{by: "b", call: 2, key: "slot 1 of api", semaphore: "api", token: 3, from: 10, to: 200},
		{by: "c", call: 2, key: "slot 2 of api", semaphore: "api", token: 4, from: 20, to: 200},
		{by: "d", call: 2, key: "api", semaphore: "api", token: 6, from: 100, to: 200},
	}
}

// Violations among keys that are held together are found in the log alone and in the referee's book alone.
func TestViolationsOfSetsAndPermitsAreFound(t *testing.T) {
	t.Parallel()
	scene := heldTogether()
	for name, test := range map[string]struct {
		holder     heldKey // holds besides
		log, store string  // the violations
	}{
		"nobody else": {},
		"an overlap inside a set": {
			heldKey{by: "c", call: 1, key: "x", token: 2, from: 50, to: 60}, "overlapping leases", "the referee saw two workers",
		},
		"a token of a set that goes back": {
			heldKey{by: "c", call: 1, key: "y", token: 6, from: 210, to: 220}, "token", "the referee saw token 6",
		},
		"two holders of a slot": {
			heldKey{by: "c", call: 1, key: "slot 1 of api", semaphore: "api", token: 9, from: 190, to: 210},
			"overlapping leases", "the referee saw two workers",
		},
		"a fourth permit": {
			heldKey{by: "c", call: 1, key: "slot 3 of api", semaphore: "api", token: 1, from: 50, to: 60},
			"the clients reported too many holders of \"api\": 4", "the referee saw too many holders of \"api\": 4",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			isAdded := test.holder.by != ""
			var log, store []event
			for _, h := range scene {
				log = append(log, h.logged()...)
				store = append(store, h.seen()...)
			}
			if isAdded {
				log = append(log, test.holder.logged()...)
				store = append(store, test.holder.seen()...)
			}
			wantViolation(t, "the log", log, test.log)
			wantViolation(t, "the book", store, test.store)
		})
	}
}

// wantViolation judges events, and wants a violation with this text, or none if the text is empty.
func wantViolation(t *testing.T, name string, events []event, want string) {
	t.Helper()
	slices.SortStableFunc(events, func(a, b event) int { return a.At.Compare(b.At) })
	found, _ := judge(events)
	if want == "" && len(found) > 0 {
		t.Errorf("%s: %q, want none", name, found)
	}
	if want != "" && !slices.ContainsFunc(found, func(v string) bool { return strings.Contains(v, want) }) {
		t.Errorf("%s: %q, want %q", name, found, want)
	}
}
