// Package recipes has the code of docs/recipes.md. Its tests run it.
package recipes

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/queuelock"
)

// A Change is a task's payload. Its producer numbers the changes of each customer from 1 on, in the transaction that makes
// them: UPDATE customer SET seq = seq + 1 WHERE id = $1 RETURNING seq.
type Change struct {
	Customer string `json:"customer"`
	Seq      int    `json:"seq"`
}

// A Store applies the changes of a customer in one transaction with their number:
//
//	UPDATE customer SET applied = $2, … WHERE id = $1 AND applied = $2 - 1
type Store interface {
	// Apply returns the number of the last change that was applied, this one included if it was the next.
	Apply(ctx context.Context, c Change) (applied int, err error)
}

// InOrder is the handler of tasks that New(locker, WithKey(ByPayloadField("customer"))) runs one at a time per customer.
func InOrder(store Store) asynq.HandlerFunc {
	return func(ctx context.Context, t *asynq.Task) error {
		var c Change
		if err := json.Unmarshal(t.Payload(), &c); err != nil {
			return fmt.Errorf("%w: %w", err, asynq.SkipRetry)
		}
		applied, err := store.Apply(ctx, c)
		if err != nil {
			return err
		}
		if applied < c.Seq {
			return queuelock.Cooldown(0) // an earlier change is still to come: deliver this one again, without counting a retry
		}
		return nil // applied now, or by a delivery before this one
	}
}
