package recipes

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/testutil"
)

// New nodes are ready after the max TTL, and then the first lock does not wait. Without nodes, Warm fails.
func TestWarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := testutil.NewNodes(t, 3)
		locker, err := core.New(testutil.Clients(nodes))
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := Warm(t.Context(), locker); err != nil || time.Since(began) > 11*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		if err := locker.TryDo(t.Context(), "account", func(context.Context) error { return nil }); err != nil {
			t.Error(err)
		}
		for _, n := range nodes {
			n.Down()
		}
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		defer cancel()
		if err := Warm(ctx, locker); !errors.Is(err, core.ErrUnavailable) {
			t.Errorf("without nodes: %v", err)
		}
		if err := locker.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
