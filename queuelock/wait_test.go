package queuelock

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/testutil/locktest"
)

// Whichever lease of a delivery is lost, its handler's error says so; a delivery with one key has none to lose beside.
func TestLossOfEitherLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locker := locktest.New(t)
		for lost := range 2 {
			var held leases
			for i, key := range []string{"task", "order"} {
				lease, err := locker.Acquire(t.Context(), key)
				if err != nil {
					t.Fatal(err)
				}
				held[i] = lease
			}
			if err := held.lost(); err != nil {
				t.Errorf("none is lost: %v", err)
			}
			locker.Lose(held[lost].Context())
			if err := held.lost(); !errors.Is(err, core.ErrLost) {
				t.Errorf("lease %d is lost: %v", lost, err)
			}
			if err := (leases{held[1-lost]}).lost(); err != nil {
				t.Errorf("the other is not: %v", err)
			}
			held.release(t.Context())
		}
	})
}
