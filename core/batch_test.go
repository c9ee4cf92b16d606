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
		short := must(p.With(TTL(p.p.ttl / 2)))
		send := func(batch []request) []string {
			return must(batchScript.runBatch(t.Context(), p.e.nodes[0].client, together(0, batch, time.Now())))
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
			w.wantGrant(p, leases[i], reply)
		}
		buried := []int{1, 4}
		for _, i := range buried {
			leases[i].nodes[0].unanswered = 1
		}
		batch = nil
		for _, lease := range leases {
			batch = append(batch, request{r: lease.releasing(0)})
		}
		if replies := send(batch); !slices.Equal(replies, slices.Repeat([]string{"OK"}, len(leases))) {
			t.Errorf("the ends are answered %q", replies)
		}
		if n := w.tombstones(p, 0); n != len(buried) {
			t.Errorf("%d tombstones, want %d", n, len(buried))
		}
	})
}

// A batch of renewals brings back what each of its leases shows, and no other.
func TestBatchBringsBackWhatIsShown(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		p := w.process()
		var leases []*Lease
		var batch []request
		for i, text := range []string{"", "one", "one", "two", ""} {
			lease := must(p.TryAcquire(t.Context(), fmt.Sprint("k", i), Note(text)))
			w.forget(p, 0, lease.key)
			lease.mu.Lock()
			r := lease.renewal()
			lease.mu.Unlock()
			leases, batch = append(leases, lease), append(batch, request{r: &r.round})
		}
		replies := must(batchScript.runBatch(t.Context(), p.e.nodes[0].client, together(0, batch, time.Now())))
		for i, lease := range leases {
			if v := renewScript.parseInBatch(replies[i]); v.verdict != VerdictHealed {
				t.Errorf("%s: %+v", lease.key, v)
			}
			if h := w.inspect(p, lease.key).Holder; h == nil || h.Note != lease.p.note {
				t.Errorf("%s: %+v, want %q", lease.key, h, lease.p.note)
			}
		}
	})
}

// wantGrant checks that node 0 has granted a lease in a batch, for as long as it was asked for, and with what it carries.
func (w *world) wantGrant(p *process, lease *Lease, reply string) {
	w.t.Helper()
	v := acquireScript.parseInBatch(reply)
	if got := v.expiry.skew(time.Now().Truncate(time.Millisecond)); v.verdict != VerdictGranted || got != lease.p.ttl {
		w.t.Errorf("%s: %+v, a lease of %v, want one of %v", lease.key, v, got, lease.p.ttl)
	}
	if r := w.resource(p, 0, lease.key); r.Owner != lease.id || r.Carried != lease.carries {
		w.t.Errorf("%s: stored %+v", lease.key, r)
	}
}

// How long Redis keeps a resource is each request's own matter, also in a batch.
func TestLivesOfABatch(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		p := w.process()
		short := must(p.With(TTL(p.p.ttl / 2)))
		var batch []request
		var leases []*Lease
		for i, l := range []*Locker{short, p.Locker, short} {
			leases = append(leases, l.newLease(t.Context(), fmt.Sprint("k", i)))
			batch = append(batch, request{r: leases[i].acquiring(false)})
		}
		done := p.newLease(t.Context(), "done")
		r := done.offering(&nodeRecord{rest: 72 * time.Hour}, 7, true)
		args := append(r.args, r.tail(0)...)
		batch = append(batch, request{r: &round{e: r.e, p: r.p, script: completeScript, args: args}})
		must(batchScript.runBatch(t.Context(), p.e.nodes[0].client, together(0, batch, time.Now())))
		life := func(key string) time.Duration {
			return time.Duration(must(w.nodes[0].Exec("PTTL", p.e.keys.Resource(key))).(int)) * time.Millisecond
		}
		for _, lease := range leases {
			if got, want := life(lease.key), lease.p.ttl+slack; got != want {
				t.Errorf("%v is kept for %v, want %v", lease.key, got, want)
			}
		}
		if got, want := life("done"), 72*time.Hour+clockJump; got != want {
			t.Errorf("the record is kept for %v, want %v", got, want)
		}
	})
}

// What the guard cannot be asked for, the ends of attempts do not need.
func TestEndsInABatchWithoutAGuard(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		p := w.process(WithRestartGuard(true))
		lease := w.acquire(p, "held")
		synctest.Wait()
		guard := p.e.guards[0].(string)
		must(w.nodes[0].Exec("DEL", guard))
		must(w.nodes[0].Exec("SET", guard, "of another type"))
		batch := []request{{r: p.newLease(t.Context(), "k").acquiring(false)}, {r: lease.releasing(0)}}
		replies, err := batchScript.runBatch(t.Context(), p.e.nodes[0].client, together(0, batch, time.Now()))
		if err != nil || len(replies) != 2 || replies[0][0] != '-' || replies[1] != "OK" {
			t.Errorf("the batch answers %q, %v", replies, err)
		}
	})
}

// Write-backs and renewals in one batch are each judged by what its own node granted, and remembers.
func TestWriteBacksInABatch(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		p := w.process(WithRestartGuard(true))
		memory := func() string { return p.e.nodes[0].memory(0) }
		const raise = 1000
		cases := []struct {
			name    string
			renewal bool
			granted func(token uint64) uint64
			memory  string // "" = the node's
			want    Verdict
		}{
			{"renewal", true, nil, "", VerdictGranted},
			{"write-back", false, func(token uint64) uint64 { return token }, "", VerdictGranted},
			{"write-back of another grant", false, func(token uint64) uint64 { return token - 1 }, "", VerdictGone},
			{"write-back after memory was lost", false, func(token uint64) uint64 { return token }, "00000000.1", VerdictGone},
			{"second renewal", true, nil, "", VerdictGranted},
			{"third renewal", true, nil, "", VerdictGranted},
			{"second write-back", false, func(token uint64) uint64 { return token }, "", VerdictGranted},
		}
		var batch []request
		var leases []*Lease
		for i, c := range cases {
			lease := w.acquire(p, fmt.Sprint("k", i))
			leases = append(leases, lease)
			if c.renewal {
				lease.mu.Lock()
				batch = append(batch, request{r: &lease.renewal().round})
				lease.mu.Unlock()
				continue
			}
			remembered := c.memory
			if remembered == "" {
				remembered = memory()
			}
			r := lease.round(renewScript, lease.args(renewScript, 0), nil)
			tail := []any{lease.token + raise, 0, c.granted(lease.token), remembered, 0}
			r.tail = func(int) []any { return tail }
			batch = append(batch, request{r: r})
		}
		replies := must(batchScript.runBatch(t.Context(), p.e.nodes[0].client, together(0, batch, time.Now())))
		for i, c := range cases {
			token := leases[i].token
			if !c.renewal && c.want == VerdictGranted {
				token += raise
			}
			got := renewScript.parseInBatch(replies[i]).verdict
			if counter := w.resource(p, 0, leases[i].key).Counter; got != c.want || counter != int64(token) {
				t.Errorf("%s: %v, the counter moved by %d", c.name, got, counter-int64(leases[i].token))
			}
		}
	})
}
