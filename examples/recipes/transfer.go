package recipes

import (
	"context"

	"github.com/lockkit/lockkit/core"
)

// A Row is an account with the fencing token under which it is written.
type Row struct {
	Account string
	Token   uint64
}

// Accounts is a store of accounts that rejects late writes.
type Accounts interface {
	// Transfer moves an amount in one transaction. It changes nothing if either row has a greater token:
	//
	//	UPDATE account SET balance = balance + $1, fence = $2 WHERE id = $3 AND fence <= $2 -- no row: roll back
	Transfer(ctx context.Context, amount int, from, to Row) error
}

// Transfer moves an amount between two accounts, which nobody else changes meanwhile.
func Transfer(ctx context.Context, locker *core.Locker, store Accounts, amount int, from, to string) error {
	return locker.DoAll(ctx, []string{from, to}, func(ctx context.Context) error {
		debit, _ := locker.Holding(ctx, from)
		credit, _ := locker.Holding(ctx, to)
		return store.Transfer(ctx, amount,
			Row{from, debit.FencingToken()},
			Row{to, credit.FencingToken()})
	})
}
