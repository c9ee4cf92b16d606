package nemesis

import (
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// recorded has the events of a run on five real servers with AOF and the restart guard, on some of its keys.
func recorded(t *testing.T) (events []event) {
	t.Helper()
	f, err := os.Open("testdata/five.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := json.NewDecoder(f)
	for {
		var e event
		switch err := lines.Decode(&e); {
		case errors.Is(err, io.EOF):
			return events
		case err != nil:
			t.Fatal(err)
		}
		events = append(events, e)
	}
}

func TestRecordingIsRight(t *testing.T) {
	t.Parallel()
	events := recorded(t)
	found, summary := judge(events)
	if found != nil || !strings.Contains(summary, "verdict: clean") {
		t.Errorf("%q\n%s", found, summary)
	}
	for _, k := range []kind{isGranted, isWrote, isReleased, isDone, isRevoked, isStarted, isForgot} {
		if !slices.ContainsFunc(events, func(e event) bool { return e.Kind == k }) {
			t.Errorf("the recording has no event %q", k)
		}
	}
}

// first returns the index of the first event that matches.
func first(t *testing.T, events []event, match func(event) bool) int {
	t.Helper()
	i := slices.IndexFunc(events, match)
	if i < 0 {
		t.Fatal("the recording has no such event")
	}
	return i
}

// successors returns the indices of two grants of one key, one after the other.
func successors(t *testing.T, events []event) (earlier, later int) {
	t.Helper()
	for i, e := range events {
		for j := i + 1; j < len(events) && e.Kind == isGranted; j++ {
			if events[j].Kind == isGranted && events[j].Key == e.Key {
				return i, j
			}
		}
	}
	t.Fatal("no key was granted twice")
	return 0, 0
}

func withoutForgets(events []event) []event {
	return slices.DeleteFunc(events, func(e event) bool { return e.Kind == isForgot })
}

// Each kind of violation is found in a recording that was changed so that it has one.
func TestViolationsAreFound(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(t *testing.T, events []event) []event
		want   string
	}{
		"a lease that is live beside the next": {func(t *testing.T, events []event) []event {
			earlier, later := successors(t, events)
			events[earlier].Until = events[later].At.Add(time.Millisecond)
			return events
		}, "overlapping leases"},
		"a worker who goes on": {func(t *testing.T, events []event) []event {
			earlier, later := successors(t, events)
			looked := events[later].At.Add(5 * time.Second)
			w := event{At: looked, Kind: isWrote, By: events[earlier].By, Key: events[earlier].Key, Token: events[earlier].Token, Asked: looked, Err: stale}
			return append(events, w)
		}, "the referee saw two workers"},
		"a store that accepts a stale write": {func(t *testing.T, events []event) []event {
			_, later := successors(t, events)
			w := event{At: events[len(events)-1].At, Kind: isWrote, By: "x", Key: events[later].Key, Token: 1, Asked: events[later].At.Add(-time.Hour)}
			return append(events, w)
		}, "fence"},
		"a token that goes back": {func(t *testing.T, events []event) []event {
			_, later := successors(t, events)
			events[later].Token = 1
			return events
		}, "token"},
		"a record that is forgotten": {func(t *testing.T, events []event) []event {
			done := events[first(t, events, func(e event) bool { return e.Kind == isDone })]
			at := done.At.Add(time.Second)
			again := event{At: at, Kind: isGranted, By: "x", Key: done.Key, Token: done.Token + 1<<32, Asked: at, Until: at}
			return append(withoutForgets(events), again)
		}, "granted after done"},
		"a cooldown that ends too soon": {func(t *testing.T, events []event) []event {
			released := events[first(t, events, func(e event) bool { return e.Kind == isReleased && e.For > 0 && e.Err == "" })]
			at := released.At.Add(time.Millisecond)
			again := event{At: at, Kind: isGranted, By: "x", Key: released.Key, Token: released.Token + 1<<32, Asked: at, Until: at}
			return append(withoutForgets(events), again)
		}, "cooldown"},
		"a holder who survives a revocation": {func(t *testing.T, events []event) []event {
			revoked := events[first(t, events, func(e event) bool { return e.Kind == isRevoked })]
			held := first(t, events, func(e event) bool { return e.Kind == isGranted && e.Key == revoked.Key && e.Token == revoked.Token })
			events[held].Until = revoked.At.Add(revoked.For + time.Second)
			return slices.DeleteFunc(withoutForgets(events), func(e event) bool { return e.Kind == isHealed })
		}, "after its revocation"},
		"a tick that starts twice": {func(t *testing.T, events []event) []event {
			again := events[first(t, events, func(e event) bool { return e.Kind == isStarted })]
			again.At = again.At.Add(time.Second)
			return append(withoutForgets(events), again)
		}, "was started by"},
		"a holder who is refused": {func(t *testing.T, events []event) []event {
			return append(events, event{At: events[len(events)-1].At, Kind: isWronged, By: "x", Key: "k", Token: 1, Text: "after token 2"})
		}, "the referee refused x"},
		"a client that is stuck": {func(t *testing.T, events []event) []event {
			return append(events, event{At: events[len(events)-1].At, Kind: isStuck, By: "x"})
		}, "granted nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			events := test.change(t, recorded(t))
			slices.SortStableFunc(events, func(a, b event) int { return a.At.Compare(b.At) })
			found, _ := judge(events)
			if !slices.ContainsFunc(found, func(v string) bool { return strings.Contains(v, test.want) }) {
				t.Errorf("%q, want %q", found, test.want)
			}
		})
	}
}

// A server that lost its memory is an excuse for a record that is forgotten, and for nothing that the guard protects.
func TestForgettingIsNoExcuseForTwoHolders(t *testing.T) {
	t.Parallel()
	events := recorded(t)
	earlier, later := successors(t, events)
	events[earlier].Until = events[later].At.Add(time.Millisecond)
	events = append(events, event{At: events[earlier].At, Kind: isForgot, Asked: events[earlier].At})
	slices.SortStableFunc(events, func(a, b event) int { return a.At.Compare(b.At) })
	if found, _ := judge(events); len(found) == 0 {
		t.Error("no violation")
	}
}

// The referee refuses smaller tokens, unless it is lax, and keeps a book.
func TestReferee(t *testing.T) {
	t.Parallel()
	for _, lax := range []bool{false, true} {
		rec := newRecord()
		r, err := startReferee(lax, rec.add)
		if err != nil {
			t.Fatal(err)
		}
		w := worker{addr: r.Addr()}
		for _, step := range []struct {
			token uint64
			want  Verdict
		}{{2, Verdict{true, 2}}, {2, Verdict{true, 2}}, {1, Verdict{lax, 2}}, {3, Verdict{true, 3}}} {
			got, err := w.show(Write{By: "a", Key: "k", Token: step.token, Looked: time.Now()})
			if err != nil || got != step.want {
				t.Errorf("lax %v, token %d: %+v, %v; want %+v", lax, step.token, got, err, step.want)
			}
		}
		w.conn.Close()
		r.Close()
		if n := len(rec.sorted()); n != 4 {
			t.Errorf("%d writes in the book, want 4", n)
		}
	}
}

// A seed draws the same faults each time, and no two faults at a time on one target.
func TestPlanIsDrawnByTheSeed(t *testing.T) {
	t.Parallel()
	for _, p := range (Options{Length: time.Hour}).parts() {
		s := &stand{part: p, o: Options{Seed: rand.Uint64(), Moved: true}, clocks: &clocks{file: os.Stdin}}
		plan, again := draw(s), draw(s)
		if len(plan) < 60 || len(plan) != len(again) {
			t.Fatalf("part %s: %d faults, and then %d", p, len(plan), len(again))
		}
		busy := map[string]time.Duration{}
		for i, st := range plan {
			if st.String() != again[i].String() || st.name != again[i].name || st.at != again[i].at || st.length != again[i].length {
				t.Fatalf("part %s, fault %d: %s%v, and then %s%v", p, i, st.name, st, again[i].name, again[i])
			}
			for _, name := range st.target.names() {
				if st.at < busy[name] {
					t.Errorf("part %s: %s at %v, when %s is taken until %v", p, st.name, st.at, name, busy[name])
				}
				busy[name] = st.at + st.length
			}
		}
	}
}

// Servers that must not forget are not made to.
func TestSingleServerWithoutGuardKeepsItsMemory(t *testing.T) {
	t.Parallel()
	s := &stand{part: part{nodes: 1, persistence: persistAOF, length: time.Hour}, clocks: &clocks{}}
	for _, st := range draw(s) {
		if st.class == ofMemory {
			t.Errorf("%s", st.name)
		}
	}
}
