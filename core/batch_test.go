package core

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// What the requests of a batch have in common is said once, and each still gets what it asked for: leases of two
// lengths, some that carry something and some that do not; then ends with a tombstone and without.
func TestGroupsOfABatch(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		p := w.process()
		short := must(p.With(TTL(p.p.ttl / 2)))
		send := func(batch []wire.Request) []quorum.Vote {
			return must(sendTogether(p.e.Nodes[0].Client, p.Locker, batch, time.Now()))
		}
		var leases []*Lease
		var batch []wire.Request
		for i, l := range []*Locker{p.Locker, p.Locker, short, p.Locker, short, short} {
			lease := l.newLease(t.Context(), fmt.Sprint("k", i))
			lease.carries = wire.Holder{Hint: []string{"", "", "", "carried", "carried", ""}[i]}.Carried()
			leases = append(leases, lease)
			batch = append(batch, to(lease.acquiring(false), 0))
		}
		for i, reply := range send(batch) {
			w.wantGrant(p, leases[i], reply.Reply)
		}
		buried := []int{1, 4}
		for _, i := range buried {
			leases[i].nodes[0].unanswered = 1
		}
		batch = nil
		for _, lease := range leases {
			batch = append(batch, to(lease.releasing(0), 0))
		}
		for _, v := range send(batch) {
			if v.Verdict != wire.Granted {
				t.Errorf("an end is answered %+v", v)
			}
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
		var batch []wire.Request
		for i, text := range []string{"", "one", "one", "two", ""} {
			lease := must(p.TryAcquire(t.Context(), fmt.Sprint("k", i), Note(text)))
			w.forget(p, 0, lease.lock.Key)
			lease.mu.Lock()
			r := lease.renewal()
			lease.mu.Unlock()
			leases, batch = append(leases, lease), append(batch, to(&r.Round, 0))
		}
		replies := must(sendTogether(p.e.Nodes[0].Client, p.Locker, batch, time.Now()))
		for i, lease := range leases {
			if v := replies[i]; v.Verdict != wire.Healed {
				t.Errorf("%s: %+v", lease.lock.Key, v)
			}
			if h := w.inspect(p, lease.lock.Key).Holder; h == nil || h.Note != lease.p.note {
				t.Errorf("%s: %+v, want %q", lease.lock.Key, h, lease.p.note)
			}
		}
	})
}

// wantGrant checks that node 0 has granted a lease in a batch, for as long as it was asked for, and with what it carries.
func (w *world) wantGrant(p *process, lease *Lease, v wire.Reply) {
	w.t.Helper()
	if got := v.Expiry.Skew(time.Now().Truncate(time.Millisecond)); v.Verdict != wire.Granted || got != lease.p.ttl {
		w.t.Errorf("%s: %+v, a lease of %v, want one of %v", lease.lock.Key, v, got, lease.p.ttl)
	}
	if r := w.resource(p, 0, lease.lock.Key); r.Owner != lease.name() || r.Carried != lease.carries {
		w.t.Errorf("%s: stored %+v", lease.lock.Key, r)
	}
}

// How long Redis keeps a resource is each request's own matter, also in a batch.
func TestLivesOfABatch(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		p := w.process()
		short := must(p.With(TTL(p.p.ttl / 2)))
		var batch []wire.Request
		var leases []*Lease
		for i, l := range []*Locker{short, p.Locker, short} {
			leases = append(leases, l.newLease(t.Context(), fmt.Sprint("k", i)))
			batch = append(batch, to(leases[i].acquiring(false), 0))
		}
		done := p.newLease(t.Context(), "done")
		batch = append(batch, to(done.offering(&wire.Record{Rest: 72 * time.Hour}, 7, true), 0))
		must(sendTogether(p.e.Nodes[0].Client, p.Locker, batch, time.Now()))
		life := func(key string) time.Duration {
			return time.Duration(must(w.nodes[0].Exec("PTTL", p.e.Keys.Resource(key))).(int)) * time.Millisecond
		}
		for _, lease := range leases {
			if got, want := life(lease.lock.Key), lease.p.ttl+wire.Slack; got != want {
				t.Errorf("%v is kept for %v, want %v", lease.lock.Key, got, want)
			}
		}
		if got, want := life("done"), 72*time.Hour+wire.ClockJump; got != want {
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
		guard := p.e.Keys.Guard(0)
		must(w.nodes[0].Exec("DEL", guard))
		must(w.nodes[0].Exec("HSET", guard, "of", "another type"))
		batch := []wire.Request{to(p.newLease(t.Context(), "k").acquiring(false), 0), to(lease.releasing(0), 0)}
		replies, err := sendTogether(p.e.Nodes[0].Client, p.Locker, batch, time.Now())
		if err != nil || len(replies) != 2 || replies[0].Verdict != wire.Failed || replies[1].Verdict != wire.Granted {
			t.Errorf("the batch answers %+v, %v", replies, err)
		}
	})
}

// Write-backs and renewals in one batch are each judged by what its own node granted, and remembers.
func TestWriteBacksInABatch(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		p := w.process(WithRestartGuard(true))
		memory := func() string { return p.e.Nodes[0].Memory(0) }
		const raise = 1000
		cases := []struct {
			name    string
			renewal bool
			granted func(token uint64) uint64
			memory  string // "" = the node's
			want    wire.Verdict
		}{
			{"renewal", true, nil, "", wire.Granted},
			{"write-back", false, func(token uint64) uint64 { return token }, "", wire.Granted},
			{"write-back of another grant", false, func(token uint64) uint64 { return token - 1 }, "", wire.Gone},
			{"write-back after memory was lost", false, func(token uint64) uint64 { return token }, "00000000.1", wire.Gone},
			{"second renewal", true, nil, "", wire.Granted},
			{"third renewal", true, nil, "", wire.Granted},
			{"second write-back", false, func(token uint64) uint64 { return token }, "", wire.Granted},
		}
		var batch []wire.Request
		var leases []*Lease
		for i, c := range cases {
			lease := w.acquire(p, fmt.Sprint("k", i))
			leases = append(leases, lease)
			if c.renewal {
				lease.mu.Lock()
				batch = append(batch, to(&lease.renewal().Round, 0))
				lease.mu.Unlock()
				continue
			}
			remembered := c.memory
			if remembered == "" {
				remembered = memory()
			}
			batch = append(batch, lease.lock.Renew(lease.p.lease, 1, func(int) wire.Renew {
				return wire.Renew{Token: lease.token + raise, Granted: c.granted(lease.token), Memory: remembered}
			})(0))
		}
		replies := must(sendTogether(p.e.Nodes[0].Client, p.Locker, batch, time.Now()))
		for i, c := range cases {
			token := leases[i].token
			if !c.renewal && c.want == wire.Granted {
				token += raise
			}
			got := replies[i].Verdict
			if counter := w.resource(p, 0, leases[i].lock.Key).Counter; got != c.want || counter != int64(token) {
				t.Errorf("%s: %v, the counter moved by %d", c.name, got, counter-int64(leases[i].token))
			}
		}
	})
}
