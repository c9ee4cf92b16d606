package recipes

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core/leader"
	"github.com/lockkit/lockkit/testutil/locktest"
)

// A fleet has one goroutine at work at a time, whether the leader closes, loses its lease or its work fails. Tokens
// grow.
func TestOneGoroutineInTheFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := locktest.New(t)
		var mu sync.Mutex
		working, most, starts, lastToken := 0, 0, 0, uint64(0)
		var current context.Context // of the work
		work := func(ctx context.Context, token uint64) error {
			mu.Lock()
			working++
			most = max(most, working)
			starts++
			if token < lastToken {
				t.Errorf("token %d after %d", token, lastToken)
			}
			lastToken = token
			current = ctx
			mu.Unlock()

			defer func() {
				mu.Lock()
				defer mu.Unlock()
				working--
			}()
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(time.Minute):
				return errors.New("the database is away")
			}
		}

		fleet := map[*leader.Elector]*locktest.Locker{}
		for range 3 {
			replica := l.Replica()
			e, err := OneGoroutine(replica.Locker, work)
			if err != nil {
				t.Fatal(err)
			}
			fleet[e] = replica
		}
		check := func(when string, wantStarts, wantWorking int) {
			t.Helper()
			mu.Lock()
			defer mu.Unlock()
			if most != 1 || starts < wantStarts || working != wantWorking {
				t.Errorf("%s: %d goroutines at a time, %d starts, %d at work", when, most, starts, working)
			}
		}
		time.Sleep(10*time.Minute + 30*time.Second)
		check("the work fails ten times", 10, 1)

		mu.Lock()
		ctx, before := current, starts
		mu.Unlock()
		l.Lose(ctx)
		time.Sleep(30 * time.Second)
		check("after a loss", before+1, 1)

		for e := range fleet {
			if err := e.Close(t.Context()); err != nil {
				t.Error(err)
			}
			time.Sleep(5 * time.Second)
		}
		check("after all have closed", before+1, 0)
	})
}
