package slot

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/lockkit/lockkit/core/internal/wire"
)

// Every slot has a name of its own, which Parse takes apart. Slot 0 is the key itself.
func TestName(t *testing.T) {
	seen := map[string]string{}
	for _, key := range []string{"a", "a/1:1", "4:slot/1:a/1:1", "1:a", strings.Repeat("k", MaxKey), "ключ", "\x00", "4:slot/"} {
		if Name(key, 0) != key {
			t.Errorf("slot 0 of %q is %q", key, Name(key, 0))
		}
		for _, i := range []int{1, 9, 10, 99, 100, 999, 1000, Max - 1} {
			name := Name(key, i)
			id := fmt.Sprint(key, " ", i)
			if other := seen[name]; other != "" || len(name) > wire.MaxKey {
				t.Errorf("%s is named %q, of %d bytes, as %s is", id, name, len(name), other)
			}
			seen[name] = id
			if gotKey, gotSlot, ok := Parse(name); !ok || gotKey != key || gotSlot != i {
				t.Errorf("Parse(%q): %q, %d, %v", name, gotKey, gotSlot, ok)
			}
		}
	}
	if n := len(Name(strings.Repeat("k", MaxKey), Max-1)); n != wire.MaxKey {
		t.Errorf("the longest name has %d bytes", n)
	}
	for _, other := range []string{
		"", "a", "4:slot", "4:slot/", "4:slot/1:a", "4:slot/1:a/", "4:slot/1:a/1:0", "4:slot/1:a/2:01", "4:slot/1:a/1:x", "4:slot/01:a/1:1",
		"4:slot/0:/1:1", "4:slot/9:a/1:1", "4:slot/1:a/1:1/1:1", "4:slot/1:a/4:1024", "4:slot/-1:a/1:1", "4:slot/1:a/2:-1", "4:slot/1:a/2:+1",
	} {
		if key, i, ok := Parse(other); ok {
			t.Errorf("Parse(%q): %q, %d", other, key, i)
		}
	}
}

// Callers of one process avoid the slots of one another, and begin with the slot that was given back last.
func TestMemory(t *testing.T) {
	const k = 5
	var m Memory
	var all []int
	for range k {
		all = append(all, m.EnterFirst("key", k))
	}
	if sorted := slices.Sorted(slices.Values(all)); !slices.Equal(sorted, []int{0, 1, 2, 3, 4}) {
		t.Errorf("five callers are in slots %v", sorted)
	}
	m.Leave("key", 3, true)
	m.Leave("key", 1, true)
	m.Leave("key", 4, false)
	for _, want := range []int{1, 3, 4} {
		if got := m.EnterFirst("key", k); got != want {
			t.Errorf("in slot %d, want %d", got, want)
		}
	}
	if got := m.EnterAnother("key", k, []int{0, 1, 2, 3}); got != 4 {
		t.Errorf("in slot %d, which was asked before", got)
	}

	// A smaller semaphore does not begin with a slot that it does not have.
	m.Leave("key", 3, true)
	if got := m.EnterFirst("key", 3); got >= 3 {
		t.Errorf("in slot %d of 3", got)
	}
}

// Every slot is chosen about as often as any other.
func TestChoiceIsFair(t *testing.T) {
	const k, rounds = 10, 20_000
	counts := make([]int, k)
	for range rounds {
		var m Memory
		counts[m.EnterAnother("key", k, []int{0})]++
	}
	for i, n := range counts[1:] {
		if want := rounds / (k - 1); n < want*8/10 || n > want*12/10 {
			t.Errorf("slot %d was chosen %d times, want about %d: %v", i+1, n, want, counts)
		}
	}
}

// A call that asks each of many slots does not search the slots that it has asked once for each of the others: the last
// slot costs about as much as the first.
func BenchmarkChoiceAmongMany(b *testing.B) {
	all := make([]int, Max-1)
	for i := range all {
		all[i] = i
	}
	for name, asked := range map[string][]int{"first": all[:1], "last": all} {
		b.Run(name, func(b *testing.B) {
			var m Memory
			for b.Loop() {
				m.EnterAnother("key", Max, asked)
			}
		})
	}
}

// What is kept of keys without callers is bounded, and nothing is kept of callers that have left.
func TestMemoryIsBounded(t *testing.T) {
	var m Memory
	for round := range 3 {
		for i := range 5 * maxIdle {
			key := strconv.Itoa(i)
			held, asked := m.EnterFirst(key, 3), m.EnterAnother(key, 3, nil)
			m.Leave(key, asked, false)
			m.Leave(key, held, round != 1)
		}
		want := maxIdle
		if round == 1 { // the slots were not given back
			want = 0
		}
		if len(m.inUse) != 0 || len(m.idle) != want {
			t.Fatalf("%d keys have callers, and %d have had some", len(m.inUse), len(m.idle))
		}
	}
	for key, last := range m.idle {
		if got := m.EnterFirst(key, 3); got != last {
			t.Errorf("in slot %d after %d was given back", got, last)
		}
	}
}
