package core

import (
	"context"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/slot"
	"github.com/lockkit/lockkit/core/internal/wire"
	"github.com/lockkit/lockkit/testutil"
)

// Locks take no more of each node than the figures in the manual promise.
func TestFootprint(t *testing.T) {
	t.Parallel()
	manual, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	const key = "queue/invoices/0af7651916cd43dd8448eb211c80319c" // 47 bytes
	trace := strings.Repeat("x", 24)
	holder := []Option{Note("billing-7f9c5d4b8d-x2x7k/1"), Name("invoices")}
	holds := func(key string) func(*Locker) { return func(l *Locker) { must(l.TryAcquire(t.Context(), key)) } }
	for _, c := range []struct {
		what string
		opts []Option
		do   func(l *Locker)
	}{
		{"a lock that is held", holder, holds(key)},
		{"a lock that is held, with a key of 512 bytes, the longest", holder, holds(strings.Repeat("k", wire.MaxKey))},
		{"a permit of a semaphore that is held (in slot 0, it is the lock of the key)", holder, holds(slot.Name(key, slot.Max-1))},
		{"a lock that is held, without its holder (`Note(\"\")`)", []Option{Note("")}, holds(key)},
		{"a lock that is held, with the holder's trace context", append(holder, WithObserver((&bearer{says: trace}).observer())), func(l *Locker) { l.TryAcquire(context.WithValue(t.Context(), opKey{}, OpAcquire), key) }},
		{"a lock just released", nil, func(l *Locker) { lockAndUnlock(t, l, key) }},
		{"a completion record, empty", nil, func(l *Locker) { complete(t, l, key, "") }},
		{"a completion record with a result of 100 bytes", nil, func(l *Locker) { complete(t, l, key, strings.Repeat("r", 100)) }},
	} {
		server := testutil.NewServers(t, 1)[0]
		client := server.Client().(*redis.Client)
		l := must(New([]redis.UniversalClient{client}, append(c.opts, quietly, unhurried, WithMaxTTL(time.Minute))...))
		c.do(l)
		keys := must(client.Keys(t.Context(), "*").Result())
		bytes, lasting, lastingBytes := int64(0), 0, int64(0)
		for _, k := range keys {
			n := client.MemoryUsage(t.Context(), k, 0).Val() + entryOverhead
			bytes += n
			if !strings.Contains(k, "}x:") { // tombstones are gone in seconds
				lasting, lastingBytes = lasting+1, lastingBytes+n
			}
		}

		t.Logf("| %s | %d | %d | %d | %d |", c.what, len(keys), bytes, lasting, lastingBytes)
		row := regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta(c.what) + ` \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$`).FindSubmatch(manual)
		if row == nil {
			t.Errorf("docs/operations.md has no row for %s", c.what)
			continue
		}
		for i, n := range []int64{int64(len(keys)), bytes, int64(lasting), lastingBytes} {
			if promised, _ := strconv.ParseInt(string(row[i+1]), 10, 64); n > promised {
				t.Errorf("%s: %d, the manual says %d", c.what, n, promised)
			}
		}

		over, cancel := context.WithCancel(t.Context())
		cancel()
		l.Close(over)
	}
}

// entryOverhead is the memory that MEMORY USAGE leaves out: the entry of an expiring key in the table of expiries.
const entryOverhead = 32

func complete(t *testing.T, l *Locker, key, result string) {
	lease := must(l.TryAcquire(t.Context(), key))
	succeeds(t, lease.Complete(t.Context(), []byte(result)))
}

// An operation costs each node one request, or at most two if it is refused.
func TestRequestsPerOperation(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		synctest.Wait() // the requests of New are over
		count := func(f func()) int {
			before := w.nodes[0].Calls()["EVALSHA"]
			f()
			time.Sleep(100 * time.Millisecond)
			return w.nodes[0].Calls()["EVALSHA"] - before
		}

		var lease *Lease
		for _, c := range []struct {
			what string
			f    func()
		}{
			{"acquire", func() { lease = w.acquire(p, "k") }},
			{"renew", func() { time.Sleep(4 * time.Second) }},
			{"release", func() { w.release(lease) }},
			{"acquire again", func() { lease = w.acquire(p, "k") }},
			{"complete", func() { lease.Complete(t.Context(), nil) }},
			{"refused", func() { p.TryAcquire(t.Context(), "k") }},
		} {
			most := 1
			if c.what == "refused" {
				most = 2 // a node that answers after the others have decided gets a release
			}
			if n := count(c.f); n < 1 || n > most {
				t.Errorf("%s: %d requests to a node, want %d at most", c.what, n, most)
			}
		}
	})
}
