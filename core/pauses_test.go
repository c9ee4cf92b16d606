package core

import (
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
	"github.com/lockkit/lockkit/testutil"
)

// Whatever the TTL, and whatever times the nodes report, no pause is longer than a second plus the minimum retry delay.
func TestPausesAreBounded(t *testing.T) {
	for _, ttl := range []time.Duration{3 * time.Second, 10 * time.Second, time.Minute, time.Hour, 24 * time.Hour} {
		p, err := newPolicy([]Option{TTL(ttl)}, 3)
		succeeds(t, err)
		all := reflect.ValueOf(p.pauses)
		for i := range all.NumField() {
			if d := time.Duration(all.Field(i).Int()); d <= 0 || d > longestPause {
				t.Errorf("TTL %v: %s is %v", ttl, all.Type().Field(i).Name, d)
			}
		}
		if p.turnMillis != wire.MillisOf(p.renewalPause+p.nodeTimeout) {
			t.Errorf("TTL %v: a node keeps others out for %v", ttl, p.turnMillis)
		}

		for outcome := range quorum.Outcome(len(refusalErrors)) {
			for _, rest := range []time.Duration{0, time.Millisecond, time.Second, 24 * time.Hour} {
				for _, late := range []bool{false, true} {
					r := refusal{outcome: outcome, retry: rest}
					least, most := r.pauseRange(&p, late)
					if least < 0 || least > most || most > longestPause+p.retryMin {
						t.Errorf("TTL %v, outcome %v, for %v: a pause of %v to %v", ttl, outcome, rest, least, most)
					}
				}
			}
		}
	}
}

// A call that waits for nodes in quarantine gets the key soon after a quorum is back, however long the quarantine is.
func TestQuorumComesBackDuringAQuarantine(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process(TTL(time.Hour))
		w.nodes[2].Down()
		w.nodes[1].RestartEmpty()
		got := make(chan *Lease, 1)
		go func() {
			lease, err := p.Acquire(t.Context(), "k")
			if err != nil {
				t.Error(err)
			}
			got <- lease
		}()
		w.pass(5 * time.Second)
		w.nodes[2].Up()
		up := time.Now()
		testutil.Receive(t, got)
		wantBetween(t, "granted after a quorum was back", time.Since(up), 0, longestPause+2*p.p.nodeTimeout)
	})
}

// A lease is renewed soon after its nodes are back, however long its TTL is.
func TestNodesComeBackDuringALongLease(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process(TTL(time.Hour))
		lease := w.holds(p, "k")
		p.set(coretest.Fate{Lose: true}, wire.OpRenew)
		w.pass(p.p.renewEvery + p.p.renewEvery/10 + 2*p.p.nodeTimeout) // until the first renewal has failed
		p.set(coretest.Fate{}, wire.OpRenew)
		w.pass(longestPause + 2*p.p.nodeTimeout)
		if left := time.Until(lease.ValidUntil()); left < p.p.validity-p.p.margin-5*time.Second {
			t.Errorf("the lease is valid for %v only, of %v", left, p.p.validity)
		}
		synctest.Wait()
	})
}
