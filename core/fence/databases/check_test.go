package databases

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/fence"
	"github.com/lockkit/lockkit/testutil/locktest"
)

// A holder that is paused until a later one has written is refused, with an error that names the greater token. The
// later holder can write twice.
func TestStaleHolderIsRefused(t *testing.T) {
	each(t, func(t *testing.T, b *bank) {
		leases := b.leases("account", 2)
		first, second := leases[0], leases[1]
		b.must(b.write(first))
		b.must(b.write(first)) // an equal token passes
		b.must(b.write(second))

		err := b.write(first)
		b.wantErr(err, fence.ErrStale, core.ErrLost)
		b.wantSaid(err, `check "account"`, fmt.Sprint(first.FencingToken()), fmt.Sprint(second.FencingToken()))
		op, ok := errors.AsType[*core.OpError](err)
		if !ok || op.Op != core.OpCheck || op.Err != core.ErrLost || op.Reason != core.LossStale {
			t.Errorf("%+v", op)
		}

		b.must(b.write(second))
		b.wantNumber("SELECT COUNT(*) FROM effect", 4)
		b.wantNumber("SELECT token FROM lockkit_fence", int64(second.FencingToken()))
	})
}

// A transaction that is rolled back leaves no token behind, and a refused one changes nothing even if it is committed.
func TestRollbackLeavesNoTrace(t *testing.T) {
	each(t, func(t *testing.T, b *bank) {
		leases := b.leases("account", 3)
		tx := b.begin(sql.LevelDefault)
		b.must(b.store.CheckLease(t.Context(), fence.SQL(tx), leases[2]))
		b.must(book(t.Context(), tx, leases[2]))
		b.must(tx.Rollback())
		b.wantNumber("SELECT COUNT(*) FROM lockkit_fence", 0)

		b.must(b.write(leases[1]))
		b.exec("UPDATE lockkit_fence SET checked_at = checked_at - 10") // so that a check can be seen to renew it
		checked := b.number("SELECT checked_at FROM lockkit_fence")
		tx = b.begin(sql.LevelDefault)
		b.wantErr(b.store.CheckLease(t.Context(), fence.SQL(tx), leases[0]), fence.ErrStale)
		b.must(tx.Commit())
		b.wantNumber("SELECT checked_at FROM lockkit_fence", checked)
		b.wantNumber("SELECT token FROM lockkit_fence", int64(leases[1].FencingToken()))
		b.must(b.write(leases[1]))
		if b.number("SELECT checked_at FROM lockkit_fence") <= checked {
			t.Error("a check does not renew the time of the row")
		}
	})
}

// Whatever the order in which writers come, the tokens of what they have written never fall.
func TestTokensOfWritesNeverFall(t *testing.T) {
	each(t, func(t *testing.T, b *bank) {
		const writers, each = 16, 200
		leases := b.leases("account", writers*each)
		greatest := leases[len(leases)-1].FencingToken()
		rand.Shuffle(len(leases), func(i, j int) { leases[i], leases[j] = leases[j], leases[i] })

		var all sync.WaitGroup
		for i := range writers {
			all.Go(func() {
				for _, lease := range leases[i*each : (i+1)*each] {
					b.writeWhenPossible(lease)
				}
			})
		}
		all.Wait()

		rows := must(b.db.Query("SELECT token FROM effect ORDER BY serial"))
		defer rows.Close()
		var last, n uint64
		for rows.Next() {
			var token uint64
			b.must(rows.Scan(&token))
			if token < last {
				t.Fatalf("token %d was written after %d", token, last)
			}
			last = token
			n++
		}
		if last != greatest || n == 0 {
			t.Errorf("the last of %d writes has token %d, want %d", n, last, greatest)
		}
		b.wantNumber("SELECT token FROM lockkit_fence", int64(greatest))
	})
}

// writeWhenPossible writes under the lease, unless it is stale. Deadlocks are the business of the caller of Check.
func (b *bank) writeWhenPossible(lease *core.Lease) {
	for range 1000 {
		err := b.write(lease)
		if err == nil || errors.Is(err, fence.ErrStale) {
			return
		}
	}
	b.Error("a thousand transactions failed")
}

// A withdrawal of 10 reads the balance and writes it back. In this order, the check comes first.
func (b *bank) withdraw(tx *sql.Tx, lease *core.Lease) error {
	if err := b.store.CheckLease(b.Context(), fence.SQL(tx), lease); err != nil {
		return err
	}
	balance, err := balanceOf(tx)
	if err != nil {
		return err
	}
	return setBalance(tx, balance-10)
}

func balanceOf(tx *sql.Tx) (balance int64, err error) {
	err = tx.QueryRow("SELECT balance FROM account").Scan(&balance)
	return balance, err
}

func setBalance(tx *sql.Tx, balance int64) error {
	_, err := tx.Exec(fmt.Sprintf("UPDATE account SET balance = %d", balance))
	return err
}

// With the check as the first statement, the check of a later holder waits until the transaction of the earlier one has
// ended. So it reads what that one has written, although the earlier lease may be lost by then.
func TestCheckBeforeRead(t *testing.T) {
	each(t, func(t *testing.T, b *bank) {
		for _, level := range b.levels {
			b.exec("UPDATE account SET balance = 100")
			leases := b.leases(fmt.Sprint("account ", level), 2)
			b.must(b.write(leases[0])) // the row exists: two inserts may deadlock

			earlier := b.begin(level)
			b.must(b.withdraw(earlier, leases[0]))
			later := make(chan error, 1)
			go func() {
				for { // where the level demands it, the transaction is repeated
					tx, err := b.db.BeginTx(context.Background(), &sql.TxOptions{Isolation: level})
					if err != nil {
						later <- err
						return
					}
					err = b.withdraw(tx, leases[1])
					if err == nil {
						later <- tx.Commit()
						return
					}
					tx.Rollback()
					if b.dialect != fence.PostgreSQL || level < sql.LevelRepeatableRead {
						later <- err
						return
					}
				}
			}()
			select {
			case err := <-later:
				t.Fatalf("%v: the later holder did not wait: %v", level, err)
			case <-time.After(100 * time.Millisecond):
			}
			b.must(earlier.Commit())
			b.must(<-later)
			b.wantNumber("SELECT balance FROM account", 80)

			tx := b.begin(level)
			b.wantErr(b.withdraw(tx, leases[0]), fence.ErrStale)
			b.must(tx.Rollback())
		}
	})
}

// If the later holder reads before its check, the earlier one can commit in between: its write is lost, unless the level
// makes the database notice.
func TestReadBeforeCheck(t *testing.T) {
	each(t, func(t *testing.T, b *bank) {
		for _, level := range b.levels {
			b.exec("UPDATE account SET balance = 100")
			leases := b.leases(fmt.Sprint("account ", level), 2)

			later := b.begin(level)
			balance, err := balanceOf(later)
			b.must(err)
			withdrawLater := func() error {
				err := b.store.CheckLease(t.Context(), fence.SQL(later), leases[1])
				if err == nil {
					err = setBalance(later, balance-10)
				}
				return end(later, err)
			}

			earlier := b.begin(level)
			if b.dialect == fence.MariaDB && level == sql.LevelSerializable {
				b.oneIsRefused(withdrawLater, func() error { return end(earlier, b.withdraw(earlier, leases[0])) })
				continue
			}
			b.must(end(earlier, b.withdraw(earlier, leases[0])))

			err = withdrawLater()
			noticed := b.dialect == fence.SQLite || b.dialect == fence.PostgreSQL && level >= sql.LevelRepeatableRead
			if noticed != (err != nil) {
				t.Errorf("%v: %v", level, err)
			}
			b.wantNumber("SELECT balance FROM account", 90) // two withdrawals of 10 should have left 80
		}
	})
}

// end commits a transaction if err is nil, and otherwise rolls it back.
func end(tx *sql.Tx, err error) error {
	if err != nil {
		tx.Rollback()
		return err
	}
	return tx.Commit()
}

// oneIsRefused checks that of two withdrawals at the same time, one fails. In MariaDB's SERIALIZABLE, reads lock, so the
// two wait for each other, and the server ends one of them.
func (b *bank) oneIsRefused(later, earlier func() error) {
	b.Helper()
	ended := make(chan error, 1)
	go func() { ended <- earlier() }()
	if laterErr, earlierErr := later(), <-ended; (laterErr == nil) == (earlierErr == nil) {
		b.Errorf("of two withdrawals, one should fail: %v; %v", laterErr, earlierErr)
	}
	b.wantNumber("SELECT balance FROM account", 90)
}

// Keys that a collation equates are different keys, and so are keys of different prefixes.
func TestKeysDoNotCollate(t *testing.T) {
	each(t, func(t *testing.T, b *bank) {
		var all []*core.Lease
		for _, key := range []string{"a", "A", "a ", "ä", "ss", "ß", "\x00", "\xff", "a\x00"} {
			all = append(all, b.leases(key, 1)...)
		}
		other := locktest.New(t, core.WithKeyPrefix("a:"))
		lease := must(other.Acquire(t.Context(), "a"))
		for _, l := range append(all, lease) {
			b.must(b.write(l))
		}
		for _, l := range all {
			b.must(b.write(l))
		}
		b.wantNumber("SELECT COUNT(*) FROM lockkit_fence", int64(len(all)+1))
	})
}

// Check is for the innermost lease of the context.
func TestCheckOfAContext(t *testing.T) {
	each(t, func(t *testing.T, b *bank) {
		b.must(b.locks.Do(t.Context(), "outer", func(ctx context.Context) error {
			return b.locks.Do(ctx, "inner", func(ctx context.Context) error {
				tx := b.begin(sql.LevelDefault)
				b.must(b.store.Check(ctx, fence.SQL(tx)))
				return tx.Commit()
			})
		}))
		lease := must(b.locks.Acquire(t.Context(), "inner"))
		b.must(b.write(lease))
		b.wantNumber("SELECT COUNT(*) FROM lockkit_fence", 1)
	})
}

// longAgo returns a lease whose token is of the year 2000, in which bubbles begin.
func longAgo(t *testing.T, key string) (lease *core.Lease) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		lease = must(locktest.New(t).Acquire(t.Context(), key))
	})
	return lease
}

// leaseOfAge returns a lease whose token was made so long ago. Bubbles begin in the year 2000, and sleeping takes no time.
func leaseOfAge(t *testing.T, key string, age time.Duration) (lease *core.Lease) {
	t.Helper()
	made := time.Now().Add(-age).Round(0) // by the wall clock
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(made))
		lease = must(locktest.New(t).Acquire(t.Context(), key))
	})
	return lease
}

// A token makes a row until it is 30 days old.
func TestAgeOfTokens(t *testing.T) {
	each(t, func(t *testing.T, b *bank) {
		b.must(b.write(leaseOfAge(t, "younger", 30*24*time.Hour-time.Hour)))
		b.wantErr(b.write(leaseOfAge(t, "older", 30*24*time.Hour+time.Hour)), fence.ErrTooOld)
		b.wantNumber("SELECT COUNT(*) FROM lockkit_fence", 1)
	})
}

// An old token passes only if there is a row of its key: a row that refused it may have been deleted.
func TestOldTokens(t *testing.T) {
	each(t, func(t *testing.T, b *bank) {
		old := longAgo(t, "account")
		err := b.write(old)
		b.wantErr(err, fence.ErrTooOld)
		b.wantSaid(err, fmt.Sprint(old.FencingToken()), "acquire it again")
		if errors.Is(err, core.ErrLost) || errors.Is(err, fence.ErrStale) {
			t.Errorf("%v is a loss", err)
		}
		b.wantNumber("SELECT COUNT(*) FROM effect", 0)
		b.wantNumber("SELECT COUNT(*) FROM lockkit_fence", 0)

		young := b.leases("account", 1)[0]
		b.must(b.write(young))
		b.wantErr(b.write(old), fence.ErrStale)

		b.exec(fmt.Sprintf("UPDATE lockkit_fence SET token = %d, checked_at = 0", old.FencingToken()-1))
		b.must(b.write(old)) // it has held its lease for long, and has written before
		b.must(b.write(old))
		if b.number("SELECT checked_at FROM lockkit_fence") == 0 {
			t.Error("the check did not renew the time of the row")
		}
	})
}

// Clean deletes what was not used for its time, and nothing else.
func TestClean(t *testing.T) {
	each(t, func(t *testing.T, b *bank) {
		leases := append(b.leases("silent", 1), b.leases("in use", 1)...)
		for _, lease := range leases {
			b.must(b.write(lease))
		}
		for _, work := range []string{"expired", "fresh"} {
			b.must(b.under(work, func(ctx context.Context) error {
				_, err := b.store.Do(ctx, b.db, booking)
				return err
			}))
		}
		const day = int64(24 * time.Hour / time.Microsecond)
		now := time.Now().UnixMicro()
		silent := leases[0].FencingToken()
		ago := func(days int64) int64 { return now - days*day }
		count := func(tokens, records int64) {
			t.Helper()
			b.wantNumber("SELECT COUNT(*) FROM lockkit_fence", tokens)
			b.wantNumber("SELECT COUNT(*) FROM lockkit_once", records)
		}
		clean := func(want int64) {
			t.Helper()
			if n, err := b.store.Clean(t.Context(), b.db); n != want || err != nil {
				t.Errorf("Clean deleted %d rows (%v), want %d", n, err, want)
			}
		}

		clean(0)
		count(4, 2)
		b.exec(fmt.Sprintf("UPDATE lockkit_fence SET checked_at = %d, token = %d WHERE token = %d", ago(30), ago(40), silent))
		clean(0) // it is a day too early
		b.exec(fmt.Sprintf("UPDATE lockkit_fence SET checked_at = %d WHERE token = %d", ago(32), ago(40)))
		b.exec(fmt.Sprintf("UPDATE lockkit_once SET expires_at = %d WHERE token = (SELECT MIN(token) FROM (SELECT token FROM lockkit_once) AS t)", ago(0)-int64(2*time.Second/time.Microsecond)))
		clean(2)
		count(3, 1)

		// A row whose token is young stays, whatever the time of its check: a later token might be smaller.
		b.exec(fmt.Sprintf("UPDATE lockkit_fence SET checked_at = %d", ago(32)))
		clean(0)

		// The work whose record is deleted can run again, and the other one cannot.
		for work, want := range map[string]error{"expired": nil, "fresh": core.ErrDone} {
			b.must(b.under(work, func(ctx context.Context) error {
				_, err := b.store.Do(ctx, b.db, booking)
				if !errors.Is(err, want) {
					t.Errorf("%s: %v, want %v", work, err, want)
				}
				return nil
			}))
		}
	})
}

// Clean deletes more rows than it finds at once.
func TestCleanOfMany(t *testing.T) {
	each(t, func(t *testing.T, b *bank) {
		tx := b.begin(sql.LevelDefault)
		for i := range 250 {
			id := fmt.Sprintf("X'%064x'", i)
			if b.dialect == fence.PostgreSQL {
				id = fmt.Sprintf(`'\x%064x'`, i)
			}
			if _, err := tx.Exec("INSERT INTO lockkit_fence (id, token, checked_at) VALUES (" + id + ", 1, 1)"); err != nil {
				t.Fatal(err)
			}
		}
		b.must(tx.Commit())
		if n, err := b.store.Clean(t.Context(), b.db); n != 250 || err != nil {
			t.Errorf("deleted %d: %v", n, err)
		}
	})
}
