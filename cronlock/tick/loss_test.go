package tick

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/testutil/locktest"
)

// A run says that it was not the only one to its end, whichever of its leases was lost.
func TestLossOfEitherLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locker := locktest.New(t)
		for lost := range 2 {
			var held [2]*core.Lease
			for i, key := range []string{"tick", "job"} {
				lease, err := locker.Acquire(t.Context(), key)
				if err != nil {
					t.Fatal(err)
				}
				held[i] = lease
			}
			r := &Claim{tickLease: held[0], jobLease: held[1], ctx: t.Context()}
			if err := r.lost(); err != nil {
				t.Errorf("none is lost: %v", err)
			}
			locker.Lose(held[lost].Context())
			if err := r.lost(); !errors.Is(err, core.ErrLost) {
				t.Errorf("lease %d is lost: %v", lost, err)
			}
			r.release(held[:]...)
		}
	})
}
