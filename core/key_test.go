package core

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/core/internal/wire"
	"github.com/lockkit/lockkit/testutil"
)

// slotOf returns the slot of a key by the Redis Cluster specification. It is the CRC16 (XMODEM) of the text between the
// first '{' and the first '}' after it, or of the whole key if there is no such text or it is empty.
func slotOf(key string) uint16 {
	if _, after, found := strings.Cut(key, "{"); found {
		if tag, _, closed := strings.Cut(after, "}"); closed && tag != "" {
			key = tag
		}
	}
	var crc uint16
	for i := range len(key) {
		crc ^= uint16(key[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc % 16384
}

// slotOf agrees with the examples of the specification, so that the fuzz target judges by the right rule.
func TestSlotOf(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]uint16{"123456789": 0x31C3, "foo": 12182, "{foo}bar": 12182, "a{foo}{bar}": 12182, "{}foo": slotOf("{}foo"), "": 0} {
		if got := slotOf(key); got != want%16384 {
			t.Errorf("slot of %q is %d, want %d", key, got, want%16384)
		}
	}
	if slotOf("{}foo") == slotOf("foo") || slotOf("foo{") == slotOf("foo") {
		t.Error("an empty tag, or none, is taken for one")
	}
}

func FuzzKeys(f *testing.F) {
	for _, key := range []string{"a", "{a}", "}{", "{", "}", "r:", "x:a", "g", "a\x00b", "\n", "\xff\xfe", "{0}r:a", "}r:a", strings.Repeat("k", 512)} {
		for _, prefix := range []string{"lockkit:", "\x00 \xff\n", "a"} {
			if err := acceptedNames(prefix, key); err != nil {
				f.Errorf("the seed %q, %q is refused, and tests nothing: %v", prefix, key, err)
			}
		}
		f.Add("lockkit:", key, "a")
		f.Add("\x00 \xff\n", key, key[1:]+"\x00")
	}
	f.Add("a", "b", "c")

	f.Fuzz(func(t *testing.T, prefix, key, other string) {
		if acceptedNames(prefix, key, other) != nil {
			t.Skip("keys or a prefix that are refused")
		}
		for _, buckets := range []int{1, wire.Buckets} {
			n := namesOf(wire.NewKeyspace(prefix, buckets, true), key)
			n.wantOneSlot(t)
			n.wantPrefix(t, prefix)
			n.wantDistinct(t, n.resource)
			n.wantDistinct(t, n.k.Resource(other))
			n.wantAttempts(t)
			if again := n.k.Resource(key); again != n.resource {
				t.Errorf("%q is %q, then %q", key, n.resource, again)
			}
			if key != other && n.resource == n.k.Resource(other) {
				t.Errorf("%q and %q are both %q", key, other, n.resource)
			}
		}
	})
}

// acceptedNames returns an error if the prefix or a key is invalid.
func acceptedNames(prefix string, keys ...string) error {
	for _, key := range keys {
		if err := checkKey(key); err != nil {
			return err
		}
	}
	_, err := newPolicy([]Option{WithKeyPrefix(prefix)}, 1)
	return err
}

// keyNames has the names under which nodes store a key.
type keyNames struct {
	k                          *wire.Keyspace
	key                        string
	resource, tombstone, guard string
	id                         string // of the attempt that the tombstone belongs to
}

func namesOf(k *wire.Keyspace, key string) keyNames {
	n := keyNames{k: k, key: key, resource: k.Resource(key), guard: k.Guard(k.Bucket(key))}
	n.tombstone, n.id = tombstoneOf(k.Lock(key, n.resource, 7))
	return n
}

// tombstoneOf returns the key of an attempt's tombstone, as a request names it, and the name of the attempt.
func tombstoneOf(l wire.Lock) (tombstone, id string) {
	request := l.Acquire(wire.Millis{}, wire.Acquire{})
	call := wire.NewPreamble(0, time.Second, 0).Encode(1, wire.Repeat(request), wire.NoMemory, time.Now())
	return coretest.RequestsOf(call.Args())[0].Tombstone, l.Waiter().Name
}

// wantOneSlot checks that a script on a Cluster may use all of the names.
func (n keyNames) wantOneSlot(t *testing.T) {
	slot := slotOf(n.resource)
	if a, b := slotOf(n.tombstone), slotOf(n.guard); a != slot || b != slot {
		t.Errorf("slots differ: %q %d, %q %d, %q %d", n.resource, slot, n.tombstone, a, n.guard, b)
	}
}

func (n keyNames) wantPrefix(t *testing.T, prefix string) {
	for _, name := range []string{n.resource, n.tombstone, n.guard} {
		if !strings.HasPrefix(name, prefix) {
			t.Errorf("%q does not start with %q", name, prefix)
		}
	}
}

// wantDistinct checks that resource, of this key or of another, is neither a tombstone nor a guard record.
func (n keyNames) wantDistinct(t *testing.T, resource string) {
	if resource == n.tombstone || resource == n.guard || n.tombstone == n.guard {
		t.Errorf("%q, %q, %q: two are the same", resource, n.tombstone, n.guard)
	}
	for b := range n.k.Buckets() {
		if resource == n.k.Guard(b) {
			t.Errorf("%q is a guard record", resource)
		}
	}
	if tag := strings.TrimSuffix(n.guard, "g") + "x:"; strings.HasPrefix(resource, tag) || !strings.HasPrefix(n.tombstone, tag) {
		t.Errorf("%q may be a tombstone, and %q is one", resource, n.tombstone)
	}
}

// wantAttempts checks that the tombstone is named for its attempt, and that no other attempt has that name.
func (n keyNames) wantAttempts(t *testing.T) {
	if strings.ContainsAny(n.id, " \n") || strings.HasPrefix(n.id, wire.CooldownPrefix) || n.tombstone[len(n.tombstone)-len(n.id):] != n.id {
		t.Errorf("attempt %q has tombstone %q", n.id, n.tombstone)
	}
	if _, next := tombstoneOf(n.k.Lock(n.key, n.resource, 8)); next == n.id {
		t.Errorf("two attempts are called %q", n.id)
	}
}

// The keys of a Cluster are spread over all buckets.
func TestBucketsSpread(t *testing.T) {
	t.Parallel()
	k := wire.NewKeyspace("lockkit:", wire.Buckets, false)
	counts := make([]int, wire.Buckets)
	const perBucket = 100
	for i := range perBucket * wire.Buckets {
		counts[k.Bucket(fmt.Sprintf("job/%d", i))]++
	}
	for b, n := range counts {
		if n < perBucket/4 || n > perBucket*4 {
			t.Errorf("bucket %d has %d keys of %d", b, n, perBucket*wire.Buckets)
		}
	}
}

func TestBadKeys(t *testing.T) {
	t.Parallel()
	node := testutil.NewNodes(t, 1)[0]
	l, err := New(testutil.Clients([]*testutil.Node{node}))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close(context.Background())

	noop := func(context.Context) error { return nil }
	ran := func(context.Context) error { t.Error("ran under a bad key"); return nil }
	for _, op := range []struct {
		name string
		call func(key string, fn func(context.Context) error) error
	}{
		{"Acquire", func(key string, _ func(context.Context) error) error {
			lease, err := l.Acquire(t.Context(), key)
			return releaseOf(t, lease, err)
		}},
		{"TryAcquire", func(key string, _ func(context.Context) error) error {
			lease, err := l.TryAcquire(t.Context(), key)
			return releaseOf(t, lease, err)
		}},
		{"Do", func(key string, fn func(context.Context) error) error { return l.Do(t.Context(), key, fn) }},
		{"TryDo", func(key string, fn func(context.Context) error) error { return l.TryDo(t.Context(), key, fn) }},
		{"Once", func(key string, fn func(context.Context) error) error { return l.Once(t.Context(), key, fn) }},
	} {
		sent := node.Calls()["EVALSHA"]
		for _, key := range []string{"", strings.Repeat("k", 513), strings.Repeat("é", 257)} {
			err := op.call(key, ran)
			if !errors.Is(err, ErrInvalid) {
				t.Errorf("%s with a key of %d bytes: %v, want ErrInvalid", op.name, len(key), err)
			}
			if want := fmt.Sprintf("has %d", len(key)); err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s: the error does not say %q: %v", op.name, want, err)
			}
		}

		if now := node.Calls()["EVALSHA"]; now != sent {
			t.Errorf("%s asked the node about bad keys", op.name)
		}
		for _, key := range []string{"\x00", strings.Repeat("k", 511) + op.name[:1]} {
			if err := op.call(key, noop); err != nil {
				t.Errorf("%s with a key of %d bytes: %v", op.name, len(key), err)
			}
		}
	}
}

// releaseOf releases the lease of an acquisition, so that the next one finds the key free.
func releaseOf(t *testing.T, lease *Lease, err error) error {
	if err != nil {
		if lease != nil {
			t.Errorf("a lease beside the error %v", err)
		}
		return err
	}
	return lease.Release(t.Context())
}

func TestKeyOfParts(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 600)
	seen := map[string][]string{}
	for _, parts := range [][]string{{"a", "b"}, {"a/1:b"}, {"a", "b", ""}, {"", "a", "b"}, {"ab"}, {"a/b"}, {"1:a", "b"}, {""}, {"", ""},
		{"a", "b", "c"}, {"a", "b/1:c"}, {long}, {long, ""}, {"", long}, {long + "x"}, {"sha256:" + strings.Repeat("0", 64)}} {
		key := Key(parts...)
		if err := checkKey(key); err != nil {
			t.Errorf("%.40q: %v", parts, err)
		}
		if other, ok := seen[key]; ok {
			t.Errorf("%.40q and %.40q make the same key", parts, other)
		}
		seen[key] = parts
	}

	if got := Key("order", "42"); got != "5:order/2:42" {
		t.Error(got)
	}
	if err := checkKey(Key()); err == nil {
		t.Error("no parts make a key")
	}
}

func FuzzKeyOfParts(f *testing.F) {
	f.Add("a", "b", "a/1:b", "")
	f.Fuzz(func(t *testing.T, a, b, c, d string) {
		x, y := Key(a, b), Key(c, d)
		if (x == y) != (a == c && b == d) || checkKey(x) != nil {
			t.Errorf("%q %q and %q %q: %q and %q", a, b, c, d, x, y)
		}
	})
}
