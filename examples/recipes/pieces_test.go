package recipes

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/testutil/locktest"
)

// Who waits for a key has it after the piece that is under way, in the same process and in another one, and not after
// all pieces.
func TestWaiterComesBetweenPieces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := locktest.New(t)
		key := core.Key("import", "42")
		for name, waiter := range map[string]*core.Locker{"in this process": l.Locker, "in another process": l.Replica().Locker} {
			done := make(chan error, 1)
			go func() {
				done <- InPieces(t.Context(), l.Locker, key, make([]string, 10), func(context.Context, string) error {
					time.Sleep(10 * time.Second)
					return nil
				})
			}()

			time.Sleep(15 * time.Second) // in the second piece
			asked := time.Now()
			if err := waiter.Do(t.Context(), key, func(context.Context) error { return nil }); err != nil {
				t.Error(err)
			}
			if waited := time.Since(asked); waited > 6*time.Second {
				t.Errorf("a waiter %s had the key after %v", name, waited)
			}
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}
