package wire

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
)

// argumentLists has the exact encodings of requests: a change here changes the protocol between releases. Numbers are
// written as text between braces, and texts with their length: "5:hello".
var argumentLists = map[string]string{
	"acquire":                     "p{0}r:k p{0}x:a p{0}g | head A 1 {6500001} {7500001} {5000000} {10000} 8:86410000 {7000000} 1:a {0} {0}",
	"acquire, carrying":           "p{0}r:k p{0}x:a p{0}g | head A 1 {6500001} {7500001} {5000000} {10000} 8:86410000 {7000000} 1:a {17} 0: {0} 7:\x00\x00\x04hint {0}",
	"acquire, waiting":            "p{0}r:k p{0}x:a p{0}g | head A 1 {6500001} {7500001} {5000000} {10000} 8:86410000 {7000000} 1:a {0} {20} 10:P+p{0}c:me 0: {0}",
	"acquire, waiting as another": "p{0}r:k p{0}x:a p{0}g | head a {7000000} 1:a {0} {21} 10:P+p{0}c:me 1:b {6000000} {10000}",
	"renew":                       "p{0}r:k p{0}g | head R 1 {6500001} {7500001} {5000000} {10000} 8:86410000 {9} 1:a {8000} {1500} 7:\x04note\x00\x00",
	"settle the token":            "p{0}r:k p{0}x:a p{0}g | head r {9} 1:a {0} {0} 0: {10000} {8} 5:abc.1",
	"complete":                    "p{0}r:k p{0}x:a p{0}g | head c {9} 1:a 5:abc.1 {3600000} {8} {3000} 0 0: {4} done",
	"complete, decided":           "p{0}r:k p{0}x:a p{0}g | head c {9} 1:a 1:- {3600000} {8} {3000} 1 12:P+p{0}c:me+b {0}",
	"release":                     "p{0}r:k p{0}x:a | bare e 1:a {9} {3000} {0} 0 0: {0}",
	"release, if found the last":  "p{0}r:k | bare E 1 8:10800000 1:a {9} {-3000}",
	"release, again":              "p{0}r:k p{0}x:a | bare e 1:a {0} {3000} {0} 2 0: {0}",
	"release, undone":             "p{0}r:k p{0}x:a | bare e 1:a {0} {-3000} {0} 1 0: {0}",
	"release, with a cooldown":    "p{0}r:k p{0}x:a | bare e 1:a {9} {3000} {251} 0 0: {0}",
	"release, leaving the queue":  "p{0}r:k p{0}x:a | bare e 1:a {0} {3000} {0} 0 12:P+p{0}c:me+b {0}",
	"release, waiting on":         "p{0}r:k p{0}x:a | bare e 1:a {0} {3000} {0} 0 12:P+p{0}c:me+b {6000000}",
	"touch":                       "p{0}p p{0}g | head t",
	"provision":                   "p{0}g | claim 7000001 500 20000 1000 -",
	"mark":                        "p{0}g | 7000001 500 20000 1000 mark 10000 ",
	"check a mark":                "p{0}g | 7000001 500 20000 1000 check 0 >10000@7",
	"lower":                       "p{0}g | 7000001 500 20000 1000 lower 10000 >10000@7",
	"unmark":                      "p{0}g | 7000001 500 20000 1000 unmark 0 ",
	"revoke":                      "p{0}r:k p{0}x:a | a 172800000 10800000",
	"forget":                      "p{0}r:k | 9",
	"probe":                       "p{0}p | publish p{0}c:",
}

// The heads of commands with and without a guard record.
const (
	argumentHead = "1 {7000001} {500} {20000} {1000} {10800000} 22:master_replid:0123abcd 17:0123abcd.77+20000 {21077}"
	argumentBare = "0 {7000001} {500} {20000} {1000} {10800000}"
)

func TestArgumentLists(t *testing.T) {
	t.Parallel()
	k := NewKeyspace("p", 1, true)
	l, b := k.LockOf("k", "a"), k.LockOf("k", "b")
	h := NewPreamble(500*time.Millisecond, 10*time.Second, time.Second).WithMaxTTL(20 * time.Second)
	lease, bury, me := MillisOf(10*time.Second), MillisOf(3*time.Second), k.Channel(0, "me")
	proposal, waiter := StampOf(time.UnixMicro(7_000_000)), b.Waiter()
	waiter.Ticket = StampOf(time.UnixMicro(6_000_000))

	requests := map[string]Request{
		"acquire":                     l.Acquire(lease, Acquire{ProposedToken: proposal}),
		"acquire, carrying":           l.Acquire(lease, Acquire{ProposedToken: proposal, Carried: Holder{Hint: "hint"}.Carried()}),
		"acquire, waiting":            l.Acquire(lease, Acquire{ProposedToken: proposal, Channel: me}),
		"acquire, waiting as another": l.Acquire(lease, Acquire{Settle: true, ProposedToken: proposal, Channel: me, Waiter: waiter}),
		"renew": l.Renew(lease, 1, func(int) Renew {
			return Renew{Token: 9, Confirmed: nodeMillis(8000), Turn: MillisOf(1500 * time.Millisecond), Carried: Holder{Note: "note"}.Carried()}
		})(0),
		"settle the token": l.Renew(lease, 1, func(int) Renew { return Renew{Token: 9, Granted: 8, Memory: "abc.1"} })(0),
		"complete": l.Complete(1, func(int) Complete {
			return Complete{Ballot: 9, Memory: "abc.1", Retention: time.Hour, Token: 8, Result: []byte("done"), TombstoneLife: bury, Channel: me}
		})(0),
		"complete, decided": l.Complete(1, func(int) Complete {
			return Complete{Ballot: 9, Memory: NoMemory, Retention: time.Hour, Token: 8, TombstoneLife: bury, Decided: true, Channel: me, Leaving: waiter.Leaving()}
		})(0),
		"release":                    l.Release(Release{TombstoneLife: bury, DropBelow: 9, Channel: me}),
		"release, if found the last": l.Release(Release{TombstoneLife: bury, Arrived: true, DropBelow: 9, Channel: me}),
		"release, again":             l.Release(Release{TombstoneLife: bury, Repeated: true, Channel: me}),
		"release, undone":            l.Release(Release{TombstoneLife: bury, Arrived: true, RestoreCounter: true, Channel: me}),
		"release, with a cooldown":   l.Release(Release{TombstoneLife: bury, DropBelow: 9, Cooldown: 250*time.Millisecond + 1, Channel: me}),
		"release, leaving the queue": l.Release(Release{TombstoneLife: bury, Channel: me, Waiter: waiter.Leaving()}),
		"release, waiting on":        l.Release(Release{TombstoneLife: bury, Channel: me, Waiter: waiter}),
		"touch":                      k.Touch(0), "provision": k.Provision(0, "claim", NoMemory), "revoke": l.Revoke(h),
		"mark": k.Mark(0, lease), "check a mark": k.CheckMark(0, ">10000@7"), "lower": k.Lower(0, lease, ">10000@7"), "unmark": k.Unmark(0),
		"forget": k.Forget("k", 9), "probe": k.Probe(0, false),
	}

	for name, want := range argumentLists {
		want = strings.Replace(strings.Replace(want, "| head", "| "+argumentHead, 1), "| bare", "| "+argumentBare, 1)
		if got := written(h.Encode(1, Repeat(requests[name]), "0123abcd.77", time.UnixMicro(7_000_001)).Args()); got != want {
			t.Errorf("%s\n got %q\nwant %q", name, got, want)
		}
	}
	if len(requests) != len(argumentLists) {
		t.Errorf("%d requests, and %d lists", len(requests), len(argumentLists))
	}
}

// written returns a command without the name of its script: the keys, then the arguments.
func written(args []any) string {
	keys := args[2].(int)
	var words []string
	for _, key := range args[3 : 3+keys] {
		words = append(words, key.(string))
	}
	words = append(words, "|")
	for _, a := range args[3+keys:] {
		packed, ok := a.(*body)
		if !ok {
			words = append(words, fmt.Sprint(a))
			continue
		}
		words = append(words, unpacked(*packed)...)
	}
	for i, word := range words {
		words[i] = strings.ReplaceAll(word, " ", "+")
	}
	return strings.Join(words, " ")
}

// The formats of the head of each kind of group, and of each request in it: B is a byte, d a number, s a text preceded
// by its length in a byte, and S a text preceded by its length as a number.
var packedFormats = map[byte][2]string{
	'A': {"Bdddds", "dsTW"}, 'R': {"Bdddds", "dsdds"}, 'E': {"Bs", "sdd"}, 'a': {"", "dsTWd"}, 'r': {"", "dsddsdds"},
	'e': {"", "sdddBsd"}, 'c': {"", "dssdddBsS"}, 't': {"", ""},
}

func unpacked(text []byte) (words []string) {
	in := &unpacker{rest: string(text)}
	var read func(format string)
	read = func(format string) {
		for _, c := range format {
			switch c {
			case 'B':
				words = append(words, fmt.Sprint(in.take(1)[0]))
			case 'd':
				n := math.Float64frombits(binary.LittleEndian.Uint64([]byte(in.take(8))))
				words = append(words, fmt.Sprintf("{%.0f}", n))
			case 's':
				s := in.text()
				words = append(words, fmt.Sprintf("%d:%s", len(s), s))
			case 'W':
				n := int(in.number())
				words = append(words, fmt.Sprintf("{%d}", n))
				if n > 0 {
					read("ssd")
				}
			case 'S', 'T':
				n := int(in.number())
				words = append(words, fmt.Sprintf("{%d}", n))
				if n > 0 && c == 'S' {
					words = append(words, in.take(n))
				} else if n > 0 {
					words = append(words, fmt.Sprint(in.take(1)[0])+":")
					words = append(words, fmt.Sprintf("{%d}", in.number()))
					s := in.text()
					words = append(words, fmt.Sprintf("%d:%s", len(s), s))
				}
			}
		}
	}

	read("Bddddd")
	if text[0] == 1 {
		read("ssd")
	}

	for in.rest != "" && !in.invalid {
		kind, count := in.take(1)[0], 1
		words = append(words, string(rune(kind)))
		if head := packedFormats[kind][0]; head != "" {
			count = int(in.rest[0])
			read(head)
		}
		for range count {
			read(packedFormats[kind][1])
		}
	}
	return words
}

// A batch contains common arguments once, keeps the order of its requests, and stamps them all with one time.
func TestBatches(t *testing.T) {
	t.Parallel()
	k := NewKeyspace("p", 1, true)
	h, wall := NewPreamble(500*time.Millisecond, 10*time.Second, 0), time.UnixMicro(7_000_000)
	lock := func(n int) *Lock { l := k.LockOf(fmt.Sprint("k", n), fmt.Sprint("a", n)); return &l }
	short, long := MillisOf(time.Second), MillisOf(10*time.Second)
	renew := func(n int) Request {
		return lock(n).Renew(long, 1, func(int) Renew { return Renew{Token: uint64(n), Turn: short} })(0)
	}
	gone := Release{TombstoneLife: short, Arrived: true}
	batch := []Request{
		lock(0).Acquire(short, Acquire{ProposedToken: StampOf(wall)}), lock(1).Acquire(short, Acquire{ProposedToken: StampOf(wall)}),
		lock(2).Acquire(long, Acquire{ProposedToken: StampOf(wall)}), renew(3), renew(4), lock(5).Release(gone), lock(6).Release(Release{RestoreCounter: true}),
		lock(7).Release(gone),
	}
	got := written(h.Encode(len(batch), func(i int) Request { return batch[i] }, "0123abcd.77!", wall).Args())
	want := "p{0}r:k0 p{0}r:k1 p{0}x:a0 p{0}x:a1 p{0}r:k2 p{0}x:a2 p{0}r:k3 p{0}r:k4 p{0}r:k5 p{0}r:k6 p{0}x:a6 p{0}r:k7 p{0}g |" +
		" 1 {7000000} {500} {10000} {0} {10800000} 22:master_replid:0123abcd 18:0123abcd.77!+10000 {0}" +
		" A 2 {6500000} {7500000} {2500000} {1000} 8:86401000 {7000000} 2:a0 {0} {0} {7000000} 2:a1 {0} {0}" +
		" A 1 {6500000} {7500000} {2500000} {10000} 8:86410000 {7000000} 2:a2 {0} {0}" +
		" R 2 {6500000} {7500000} {2500000} {10000} 8:86410000 {3} 2:a3 {0} {1000} 0: {4} 2:a4 {0} {1000} 0:" +
		" E 1 8:10800000 2:a5 {0} {-1000} e 2:a6 {0} {0} {0} 1 0: {0} E 1 8:10800000 2:a7 {0} {-1000}"
	if got != want {
		t.Errorf("the batch is\n%q, want\n%q", got, want)
	}
}
