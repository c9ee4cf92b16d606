package wire

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// What nodes are told, word for word: a change of this is a change of the protocol between releases.
var argumentLists = map[string]string{
	"acquire":                     "p{0}r:k p{0}x:a p{0}g | a 7000001 500 10000 20000 1000 10800000 | 0 7000000",
	"acquire, carrying":           "p{0}r:k p{0}x:a p{0}g | a 7000001 500 10000 20000 1000 10800000 | 0 7000000 \x00\x00\x04hint",
	"acquire, waiting":            "p{0}r:k p{0}x:a p{0}g | a 7000001 500 10000 20000 1000 10800000 | 0 7000000 _ P+p{0}c:me",
	"acquire, waiting as another": "p{0}r:k p{0}x:a p{0}g | a 7000001 500 10000 20000 1000 10800000 | 1 7000000 _ P+p{0}c:me b 6000000",
	"renew":                       "p{0}r:k p{0}x:a p{0}g | a 7000001 500 10000 20000 1000 10800000 | 9 8000 0 - 1500 \x04note\x00\x00",
	"settle the token":            "p{0}r:k p{0}x:a p{0}g | a 7000001 500 10000 20000 1000 10800000 | 9 0 8 abc.1 0 _",
	"complete":                    "p{0}r:k p{0}x:a p{0}g | a 7000001 500 10000 20000 1000 10800000 | 9 abc.1 3600000 8 3000 0 done _",
	"complete, decided":           "p{0}r:k p{0}x:a p{0}g | a 7000001 500 10000 20000 1000 10800000 | 9 - 3600000 8 3000 1 _ P+p{0}c:me+b",
	"release":                     "p{0}r:k p{0}x:a | a | 3000 0 9 10800000 0",
	"release, undone":             "p{0}r:k p{0}x:a | a | 0 0 0 10800000 1",
	"release, with a cooldown":    "p{0}r:k p{0}x:a | a | 3000 251 9 10800000 0",
	"release, leaving the queue":  "p{0}r:k p{0}x:a | a | 3000 0 0 10800000 0 P+p{0}c:me+b",
	"release, waiting on":         "p{0}r:k p{0}x:a | a | 3000 0 0 10800000 0 P+p{0}c:me+b 6000000",
	"touch":                       "p{0}p p{0}p p{0}g | - 7000001 500 0 20000 1000 10800000 |",
	"provision":                   "p{0}g | claim 7000001 500 20000 1000 | -",
	"revoke":                      "p{0}r:k p{0}x:a | a | 172800000 10800000",
	"forget":                      "p{0}r:k | | 9",
	"probe":                       "p{0}p | | publish p{0}c:",
}

func TestArgumentLists(t *testing.T) {
	t.Parallel()
	k := NewKeyspace("p", 1, true)
	l, b := k.LockOf("k", "a"), k.LockOf("k", "b")
	h := NewHead(500*time.Millisecond, 10*time.Second, time.Second).WithMaxTTL(20 * time.Second)
	lease, bury, me := MillisOf(10*time.Second), MillisOf(3*time.Second), k.Channel(0, "me")
	proposal, waiter := StampOf(time.UnixMicro(7_000_000)), b.Waiter()
	waiter.Ticket = StampOf(time.UnixMicro(6_000_000))
	requests := map[string]Request{
		"acquire":                     l.Acquire(lease, Acquire{Propose: proposal}),
		"acquire, carrying":           l.Acquire(lease, Acquire{Propose: proposal, Carried: Holder{Hint: "hint"}.Carried()}),
		"acquire, waiting":            l.Acquire(lease, Acquire{Propose: proposal, Channel: me}),
		"acquire, waiting as another": l.Acquire(lease, Acquire{Settle: true, Propose: proposal, Channel: me, Waiter: waiter}),
		"renew": l.Renew(lease, 1, func(int) Renew {
			return Renew{Token: 9, Confirmed: NodeMillis(8000), Turn: MillisOf(1500 * time.Millisecond), Carried: Holder{Note: "note"}.Carried()}
		})(0),
		"settle the token": l.Renew(lease, 1, func(int) Renew { return Renew{Token: 9, Granted: 8, Memory: "abc.1"} })(0),
		"complete": l.Complete(lease, 1, func(int) Complete {
			return Complete{Ballot: 9, Memory: "abc.1", Rest: time.Hour, Token: 8, Result: []byte("done"), Bury: bury, Channel: me}
		})(0),
		"complete, decided": l.Complete(lease, 1, func(int) Complete {
			return Complete{Ballot: 9, Memory: NoMemory, Rest: time.Hour, Token: 8, Bury: bury, Decided: true, Channel: me, Quits: waiter.Quits()}
		})(0),
		"release":                    l.Release(h, Release{Bury: bury, DropBelow: 9, Channel: me}),
		"release, undone":            l.Release(h, Release{Bury: bury, Undo: true, Channel: me}).WithoutTombstone(),
		"release, with a cooldown":   l.Release(h, Release{Bury: bury, DropBelow: 9, Stay: 250*time.Millisecond + 1, Channel: me}),
		"release, leaving the queue": l.Release(h, Release{Bury: bury, Channel: me, Waiter: waiter.Quits()}),
		"release, waiting on":        l.Release(h, Release{Bury: bury, Channel: me, Waiter: waiter}),
		"touch":                      k.Touch(0), "provision": k.Provision(0, "claim", NoMemory), "revoke": l.Revoke(h),
		"forget": k.Forget("k", 9), "probe": k.Probe(0, false),
	}
	for name, want := range argumentLists {
		if got := written(h.Encode(requests[name], time.UnixMicro(7_000_001)).Args(), requests[name].script.form); got != want {
			t.Errorf("%s\n got %q\nwant %q", name, got, want)
		}
	}
	if len(requests) != len(argumentLists) {
		t.Errorf("%d requests, and %d lists", len(requests), len(argumentLists))
	}
}

// written is a command without the name of its script: keys, what all such requests have, and what is the request's own.
func written(args []any, f form) string {
	keys := args[2].(int)
	shared := 3 + keys + map[form]int{bare: 1, whole: 7, declares: 5}[f]
	if f == bare && args[1] == forgetScript.sha || args[1] == probeScript.sha {
		shared = 3 + keys // they are about no attempt
	}
	parts := [][]any{args[3 : 3+keys], args[3+keys : shared], args[shared:]}
	var text []string
	for i, part := range parts {
		if i > 0 {
			text = append(text, "|")
		}
		for _, a := range part {
			word := strings.ReplaceAll(fmt.Sprint(a), " ", "+")
			if b, ok := a.([]byte); ok {
				word = string(b)
			}
			if word == "" {
				word = "_"
			}
			text = append(text, word)
		}
	}
	return strings.Join(text, " ")
}

// A batch says what its requests have in common once, keeps their order, and stamps them all with one time.
func TestBatches(t *testing.T) {
	t.Parallel()
	k := NewKeyspace("p", 1, true)
	h, wall := NewHead(500*time.Millisecond, 10*time.Second, 0), time.UnixMicro(7)
	lock := func(n int) *Lock { l := k.LockOf(fmt.Sprint("k", n), fmt.Sprint("a", n)); return &l }
	short, long := MillisOf(time.Second), MillisOf(10*time.Second)
	renew := func(n int) Request {
		return lock(n).Renew(long, 1, func(int) Renew { return Renew{Token: uint64(n), Turn: short, Carried: "x"} })(0)
	}
	batch := []Request{
		lock(0).Acquire(short, Acquire{Propose: StampOf(wall)}), lock(1).Acquire(short, Acquire{Propose: StampOf(wall)}),
		lock(2).Acquire(long, Acquire{Propose: StampOf(wall)}), renew(3), renew(4), lock(5).Release(h, Release{}),
	}
	args := h.EncodeBatch(len(batch), func(i int) Request { return batch[i] }, wall).Args()
	keys := args[2].(int)
	if want := 2*len(batch) + 1; keys != want || args[3] != "p{0}r:k0" || args[4] != "p{0}x:a0" || args[2+keys] != "p{0}g" {
		t.Errorf("%d keys, want %d: %v", keys, want, args[3:3+keys])
	}
	got := fmt.Sprintf("%q", args[3+keys:])
	want := fmt.Sprintf("%q", []any{
		"-", int64(7), int64(500), 0, int64(10000), int64(0), int64(10800000),
		"A", 2, int64(1000), "0", "", "", "", "", "a0", int64(7), "a1", int64(7),
		"A", 1, int64(10000), "0", "", "", "", "", "a2", int64(7),
		"R", 2, int64(10000), uint64(0), "-", int64(1000), "x", "a3", uint64(3), int64(0), "a4", uint64(4), int64(0),
		"E", 1, 0, "0", int64(0), int64(10800000), "0", "", "", "a5", uint64(0),
	})
	if got != want {
		t.Errorf("the batch says\n%s, want\n%s", got, want)
	}
	if !slices.Equal(h.EncodeBatch(1, func(int) Request { return batch[0] }, wall).InFull()[2:], h.EncodeBatch(1, func(int) Request { return batch[0] }, wall).Args()[2:]) {
		t.Error("in full, it says something else")
	}
}
