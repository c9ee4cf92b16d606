package core

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// saidAtRelease records the releases that p sends to node 0: below which ballot records are dropped, and whether the
// counter is put back.
func (p *process) saidAtRelease() *[][2]any {
	said := new([][2]any)
	p.links[0].Decide(func(s wire.Op, q coretest.Sent) coretest.Fate {
		if s == wire.OpRelease {
			*said = append(*said, [2]any{q.DropBelow, q.Undo})
		}
		return coretest.Fate{}
	})
	return said
}

// The release of a holder drops the records that cannot be decided any more. An attempt puts the counter back only if
// its token was never shown. A completion shows the token, too.
func TestWhatReleasesSay(t *testing.T) {
	bubbleNamed(t, "held", 3, func(t *testing.T, w *world) {
		p := w.process()
		said := p.saidAtRelease()
		lease := w.acquire(p, "k")
		synctest.Wait() // until node 0 has granted the lease
		w.release(lease)
		synctest.Wait() // until the release has reached node 0
		wantSaid(t, *said, [2]any{lease.FencingToken(), false})
	})

	bubbleNamed(t, "not granted by a quorum", 3, func(t *testing.T, w *world) {
		w.acquire(w.process().reaches(1, 2), "k")
		p := w.process()
		said := p.saidAtRelease()
		for _, k := range p.links[1:] {
			k.Set(coretest.Fate{ReplyDelay: time.Millisecond}, wire.OpAcquire) // node 0 grants before they refuse
		}
		l := patientTry(p.Locker)
		go l.TryAcquire(t.Context(), "k")
		w.pass(2 * time.Millisecond)
		wantSaid(t, *said, [2]any{uint64(0), true})
		p.Close(over())
	})

	bubbleNamed(t, "settling in vain", 3, func(t *testing.T, w *world) {
		w.cutShort(w.process(), "k", "result")
		p := w.process()
		said := p.saidAtRelease()
		for _, k := range p.links[1:] { // node 0 shows the record first, and is the only node that gets a completion
			k.Decide(func(s wire.Op, _ coretest.Sent) coretest.Fate {
				return coretest.Fate{Refuse: s == wire.OpComplete, ReplyDelay: time.Millisecond}
			})
		}
		if _, err := p.TryAcquire(t.Context(), "k"); err == nil || errors.Is(err, ErrDone) {
			t.Fatalf("the schedule is off: %v", err)
		}
		synctest.Wait()
		wantSaid(t, (*said)[max(len(*said)-1, 0):], [2]any{uint64(0), false}) // only the last release counts
	})
}

// wantSaid checks that there was one release, with these values.
func wantSaid(t *testing.T, said [][2]any, want [2]any) {
	t.Helper()
	if len(said) != 1 || said[0] != want {
		t.Errorf("released with %v, want %v", said, want)
	}
}

// If a quorum of nodes has forgotten the lease, its holder may not have been alone until the end, and Release returns
// ErrLost.
func TestReleaseThatIsOutvoted(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		lease := w.acquire(p, "k")
		synctest.Wait() // until all nodes have granted the lease
		w.forget(p, 0, "k")
		w.forget(p, 1, "k")
		for range 2 { // the second release finds the tombstones of the first
			err := lease.Release(t.Context())
			wantErr(t, err, ErrLost)
			wantReason(t, err, LossTaken)
		}
	})
}

// A renewal brings the lease to nodes that were not asked for it before, and the release reaches these nodes, too.
func TestReleaseReachesWhereRenewalsWent(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		w.avoids(p, 2)
		lease := w.acquire(p, "k")
		asked := func() bool {
			lease.attempt.mu.Lock()
			defer lease.attempt.mu.Unlock()
			return lease.askedNodes.Has(2)
		}

		// Node 2 may count as asked if the other nodes have answered before its request was dropped.
		for i := 0; asked() && i < 20; i++ {
			w.release(lease)
			lease = w.acquire(p, "k")
		}
		if asked() {
			t.Fatal("the schedule is off: node 2 was asked")
		}

		p.links[2].Mend()
		time.Sleep(15 * time.Second)
		if owner := w.owner(p, 2, "k"); owner != lease.name() {
			t.Fatalf("the schedule is off: node 2 belongs to %q", owner)
		}
		w.release(lease)
		synctest.Wait()
		w.wantFree(p, "k", 2)
	})
}
