package core

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// What the requests of a batch have in common is said once, and each still gets what it asked for: leases of two
// lengths, some that carry something and some that do not; then ends with a tombstone and without.
func TestGroupsOfABatch(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		p := w.process()
		short := must(p.With(WithTTL(p.p.ttl / 2)))
		node := p.e.nodes[0]
		send := func(batch []request) []string {
			return must(batchScript.runBatch(t.Context(), node.client, together(0, batch, time.Now())))
		}
		var leases []*Lease
		var batch []request
		for i, l := range []*Locker{p.Locker, p.Locker, short, p.Locker, short, short} {
			lease := l.newLease(t.Context(), fmt.Sprint("k", i))
			lease.carries = []string{"", "", "", "carried", "carried", ""}[i]
			leases = append(leases, lease)
			batch = append(batch, request{r: lease.acquiring(false)})
		}
		for i, reply := range send(batch) {
			v, lease := acquireScript.parseInBatch(reply), leases[i]
			if got := time.Duration(v.expiry-time.Now().UnixMilli()) * time.Millisecond; v.verdict != Granted || got != lease.p.server {
				t.Errorf("%d: %+v, a lease of %v, want one of %v", i, v, got, lease.p.server)
			}
			if r := w.resource(p, 0, lease.key); r.Owner != lease.id || r.Carried != lease.carries {
				t.Errorf("%d: stored %+v", i, r)
			}
		}
		batch = nil
		var buried int
		for i, lease := range leases {
			if i == 1 || i == 4 {
				buried++
				lease.nodes[0].unanswered = 1
			}
			batch = append(batch, request{r: lease.releasing(0)})
		}
		if replies := send(batch); !slices.Equal(replies, slices.Repeat([]string{"OK"}, len(leases))) {
			t.Errorf("the ends are answered %q", replies)
		}
		if n := w.tombstones(p, 0); n != buried {
			t.Errorf("%d tombstones, want %d", n, buried)
		}
	})
}

// A batch that has landed leaves its goroutine behind for the next one, for a while, and until Close.
func TestGoroutinesOfALane(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		p := w.process()
		waits := func() bool {
			synctest.Wait()
			return p.e.nodes[0].lane(0).waits.Load()
		}
		w.release(w.acquire(p, "k"))
		if !waits() {
			t.Error("none waits for the next batch")
		}
		time.Sleep(idleTime / 2)
		w.release(w.acquire(p, "k"))
		time.Sleep(idleTime - 1)
		if !waits() {
			t.Error("it does not wait for its time")
		}
		time.Sleep(1)
		if waits() {
			t.Error("it waits for longer")
		}
		w.release(w.acquire(p, "k"))
		start := time.Now()
		if err := p.Close(t.Context()); err != nil || time.Since(start) > 0 {
			t.Errorf("Close waits for %v: %v", time.Since(start), err)
		}
		if waits() {
			t.Error("it outlasts Close")
		}
	})
}
