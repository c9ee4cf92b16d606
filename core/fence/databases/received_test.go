package databases

import (
	"context"
	"database/sql"
	"net/http"
	"testing"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/fence"
	"github.com/lockkit/lockkit/core/fence/httpfence"
)

// received returns the context of a request that a client has sent under the lease.
func (b *bank) received(ctx context.Context, lease *core.Lease) context.Context {
	b.Helper()
	r := must(http.NewRequestWithContext(ctx, "POST", "http://service/", nil))
	b.must(httpfence.SetLease(r, lease))
	return must(httpfence.Receive(r, lease.Key()))
}

// A lease that was received with a request is checked as one of the service itself: the clients of a service and the
// service have one row for the key.
func TestReceivedLease(t *testing.T) {
	each(t, func(t *testing.T, b *bank) {
		leases := b.leases("account", 4)
		check := func(ctx context.Context) error {
			tx := b.begin(sql.LevelDefault)
			defer tx.Rollback()
			if err := b.store.Check(ctx, fence.SQL(tx)); err != nil {
				return err
			}
			return tx.Commit()
		}
		doChecked := func(ctx context.Context) error {
			return b.store.DoChecked(ctx, b.db, func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, "INSERT INTO effect (token) VALUES (1)")
				return err
			})
		}
		do := func(ctx context.Context) error {
			result, err := b.store.Do(ctx, b.db, func(ctx context.Context, tx *sql.Tx) ([]byte, error) {
				_, err := tx.ExecContext(ctx, "INSERT INTO effect (token) VALUES (2)")
				return []byte("booked"), err
			})
			if err == nil && string(result) != "booked" {
				t.Errorf("the result is %q", result)
			}
			return err
		}

		for i, write := range []func(ctx context.Context) error{check, doChecked, do} {
			earlier, later := b.received(b.named("payment"), leases[i]), b.received(b.named("payment"), leases[i+1])
			b.must(write(earlier))
			if i == 0 {
				b.must(write(earlier)) // an equal token passes
			}
			b.must(check(later))
			b.wantErr(write(earlier), fence.ErrStale, core.ErrLost)
		}
		b.wantErr(do(b.received(b.named("payment"), leases[3])), core.ErrDone)
		b.wantNumber("SELECT COUNT(*) FROM effect", 2)
		b.wantNumber("SELECT token FROM lockkit_once", int64(leases[2].FencingToken()))

		b.wantErr(b.write(leases[0]), fence.ErrStale) // the service itself has the same row
		b.must(b.write(b.leases("account", 1)[0]))
		b.wantErr(check(b.received(t.Context(), leases[3])), fence.ErrStale)
		b.wantNumber("SELECT COUNT(*) FROM lockkit_fence", 1)
	})
}
