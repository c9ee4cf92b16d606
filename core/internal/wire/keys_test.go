package wire

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockkit/lockkit/testutil"
)

// Kind recognizes every Redis key that a Keyspace names, and calls all other names foreign.
func TestKind(t *testing.T) {
	t.Parallel()
	for _, buckets := range []int{1, Buckets} {
		k := NewKeyspace("lockkit:", buckets, false)
		b := k.Bucket("order:1")
		l := k.Lock("order:1", k.Resource("order:1"), 7)
		tombstone := l.tombstone.(string)
		if other := k.LockOf("order:1", l.id); other != l {
			t.Errorf("%+v is not %+v", other, l)
		}
		for name, want := range map[string]string{
			k.Resource("order:1"): "lock", k.Waiters("order:1"): "waiters", tombstone: "tombstone", k.Guard(b): "guard", k.GuardsQuery(b)[2].(string): "guard", k.probeKey(b): "probe",
			k.Resource(strings.Repeat("k", MaxKey)): "lock", k.Resource(strings.Repeat("k", MaxKey+1)): "foreign", k.Resource(""): "foreign",
			k.Channel(b, "p").Name: "foreign", "lockkit:mine": "foreign", "lockkit:{64}r:order:1": "foreign", "lockkit:{0}y:order": "foreign", "other:{0}r:order:1": "foreign", "": "foreign",
		} {
			kind, key := k.Kind(name)
			if kind != want || (key == "order:1") != (strings.HasSuffix(name, "order:1") && want != "foreign") {
				t.Errorf("%q is %s of %q, want %s", name, kind, key, want)
			}
		}
	}
	if kind, _ := NewKeyspace("lockkit:", Buckets, false).Kind("lockkit:{" + map[bool]string{true: "0", false: "1"}[NewKeyspace("", Buckets, false).Bucket("k") == 1] + "}r:k"); kind != "foreign" {
		t.Error("a key in another bucket is taken for one of ours")
	}
}

// Globs match all keys under the prefix, even if the prefix looks like a glob, and no others.
func TestPatterns(t *testing.T) {
	t.Parallel()
	found := func(n *testutil.Node, pattern string) (names []string) {
		reply, err := n.Exec("SCAN", "0", "MATCH", pattern, "COUNT", "1000")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range reply.([]any)[1].([]any) {
			names = append(names, name.(string))
		}
		slices.Sort(names)
		return names
	}

	for _, prefix := range []string{"lockkit:", "a*b:", "a?b:", "a[b]c:", `a\b:`, `a\*[^-]?:`, "*", "[", `\`} {
		for _, buckets := range []int{1, Buckets} {
			k, n := NewKeyspace(prefix, buckets, false), testutil.StartNode()
			defer n.Close()
			for _, name := range []string{"a-b:{0}r:order:1", "ab:{0}r:order:1", "abc:{0}r:order:1", "x"} {
				if _, err := n.Exec("SET", name, "x"); err != nil {
					t.Fatal(err)
				}
			}
			mine := []string{k.Guard(0), k.Resource("order*"), k.Resource("order:1"), k.Resource("other"), k.Resource("}r:order:1"), k.Waiters("order:1")}
			for _, name := range mine {
				if _, err := n.Exec("SET", name, "x"); err != nil {
					t.Fatal(err)
				}
			}

			slices.Sort(mine)
			if got := found(n, k.Everything()); !slices.Equal(got, mine) {
				t.Errorf("under %q are %q, want %q", prefix, got, mine)
			}

			for glob, want := range map[string][]string{"order:?": {k.Resource("order:1")}, `order\*`: {k.Resource("order*")}, "nothing*": nil,
				"*order:1": {k.Resource("order:1"), k.Resource("}r:order:1")}} {
				var got []string
				for _, pattern := range k.Resources(glob) {
					got = append(got, found(n, pattern)...)
				}
				slices.Sort(got)
				if slices.Sort(want); !slices.Equal(got, want) {
					t.Errorf("%q under %q finds %q, want %q", glob, prefix, got, want)
				}
			}
		}
	}
}

// A value that another program wrote is not mistaken for a value of this package.
func TestCarriedByAnother(t *testing.T) {
	t.Parallel()
	all := Holder{"note", "name", "hint"}
	packed := all.Carried()
	for text, want := range map[string]Holder{
		"": {}, packed: all, packed[:14]: {}, packed + "x": {}, "hint": {}, "\x00\x00": {}, "\x00\x00\x00": {}, "\x00\x00\x02ab": {Hint: "ab"},
		"\x00\x00\x41" + strings.Repeat("x", 65): {}, strings.Repeat("x", 256): {},
	} {
		if c := ParseCarried(text); c != want {
			t.Errorf("%q is %+v", text, c)
		}
	}
}

// No time overflows, whatever values a node or a caller passes.
func TestTimesSaturate(t *testing.T) {
	const centuries = 290 * 365 * 24 * time.Hour
	last := nodeMillis(maxNumber)
	if got := last.Millis(); got != maxNumber {
		t.Errorf("%d ms are %d", maxNumber, got)
	}
	if got := last.Since(0); got < centuries {
		t.Errorf("the last time of a node is in %v", got)
	}
	if got := NodeTime(0).Since(last); got > -centuries {
		t.Errorf("and it was %v before", got)
	}
	if got := NodeTime(0).Lead(math.MaxUint64 >> 1); got < centuries {
		t.Errorf("the greatest token is %v ahead", got)
	}
}
