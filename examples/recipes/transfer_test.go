package recipes

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/testutil/locktest"
)

// A ledger is a store of accounts in memory. It reads both balances, and writes them later: transfers that are not
// alone lose money.
type ledger struct {
	mu       sync.Mutex
	balances map[string]int
	fences   map[string]uint64
}

var errLate = errors.New("a row has a greater token")

func (s *ledger) Transfer(_ context.Context, amount int, from, to Row) error {
	read := func(account string) int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.balances[account]
	}
	debit, credit := read(from.Account)-amount, read(to.Account)+amount
	time.Sleep(10 * time.Millisecond)

	s.mu.Lock()
	defer s.mu.Unlock()
	if from.Token < s.fences[from.Account] || to.Token < s.fences[to.Account] {
		return errLate
	}
	s.fences[from.Account], s.fences[to.Account] = from.Token, to.Token
	s.balances[from.Account], s.balances[to.Account] = debit, credit
	return nil
}

// Transfers in opposite directions wait for one another, and lose no money. A late write under an earlier token is
// rejected.
func TestTransfer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := locktest.New(t)
		store := &ledger{balances: map[string]int{"alice": 100, "bob": 100}, fences: map[string]uint64{}}
		var all sync.WaitGroup
		for i := range 10 {
			from, to := "alice", "bob"
			if i%2 == 1 {
				from, to = to, from
			}
			all.Go(func() {
				if err := Transfer(t.Context(), l.Locker, store, 10, from, to); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if store.balances["alice"] != 100 || store.balances["bob"] != 100 {
			t.Errorf("balances: %v", store.balances)
		}

		early := Row{"alice", store.fences["alice"]}
		if err := Transfer(t.Context(), l.Locker, store, 10, "alice", "bob"); err != nil {
			t.Fatal(err)
		}
		err := l.Locker.Do(t.Context(), "bob", func(ctx context.Context) error {
			lease, _ := core.FromContext(ctx)
			return store.Transfer(ctx, 10, early, Row{"bob", lease.FencingToken()})
		})
		if !errors.Is(err, errLate) {
			t.Errorf("a late write: %v", err)
		}
	})
}
