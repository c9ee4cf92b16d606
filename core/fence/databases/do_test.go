package databases

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/fence"
)

// wantResult checks the result and the error of Do.
func (b *bank) wantResult(got []byte, err error, want string, wantErr error) {
	b.Helper()
	if string(got) != want || !errors.Is(err, wantErr) {
		b.Errorf("%q, %v; want %q, %v", got, err, want, wantErr)
	}
}

// The work is done once, whoever does it and however often. Later calls get its result, with the token of its run.
func TestDoRunsOnce(t *testing.T) {
	each(t, func(t *testing.T, b *bank) {
		var token uint64
		b.must(b.under("payment", func(ctx context.Context) error {
			lease, _ := core.FromContext(ctx)
			token = lease.FencingToken()
			result, err := b.store.Do(ctx, b.db, booking)
			b.wantResult(result, err, "booked", nil)
			return nil
		}))

		for range 2 {
			b.must(b.under("payment", func(ctx context.Context) error {
				result, err := b.store.Do(ctx, b.db, booking)
				b.wantResult(result, err, "booked", core.ErrDone)
				op, _ := errors.AsType[*core.OpError](err)
				if work, _ := core.Work(ctx); op.Op != core.OpOnce || op.Key != work || op.Record.Token != token {
					t.Errorf("%+v", op)
				}
				return nil
			}))
		}
		b.wantNumber("SELECT COUNT(*) FROM effect", 1)

		// Other work, and a work without a result.
		b.must(b.under("refund", func(ctx context.Context) error {
			for _, want := range []error{nil, core.ErrDone} {
				result, err := b.store.Do(ctx, b.db, func(ctx context.Context, tx *sql.Tx) ([]byte, error) {
					_, err := booking(ctx, tx)
					return nil, err
				})
				b.wantResult(result, err, "", want)
				b.wantNumber("SELECT COUNT(*) FROM effect", 2)
			}
			return nil
		}))
		b.wantNumber("SELECT COUNT(*) FROM lockkit_once", 2)
	})
}

// Callers that do the same work at the same time, under keys of their own, wait for each other.
func TestDoAtTheSameTime(t *testing.T) {
	each(t, func(t *testing.T, b *bank) {
		var all sync.WaitGroup
		var first atomic.Int32
		for range 16 {
			all.Go(func() {
				err := b.under("payment", func(ctx context.Context) error {
					result, err := b.store.Do(ctx, b.db, booking)
					if err == nil {
						first.Add(1)
						b.wantResult(result, err, "booked", nil)
						return nil
					}
					b.wantResult(result, err, "booked", core.ErrDone)
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if n := first.Load(); n != 1 {
			t.Errorf("%d callers did the work", n)
		}
		b.wantNumber("SELECT COUNT(*) FROM effect", 1)
	})
}

// If fn fails, panics or has too large a result, nothing is left, and the work can be done.
func TestDoThatFailsLeavesNothing(t *testing.T) {
	failure := errors.New("failure")
	each(t, func(t *testing.T, b *bank) {
		for name, c := range map[string]struct {
			end  func() ([]byte, error)
			want error
		}{
			"error":     {func() ([]byte, error) { return nil, failure }, failure},
			"panic":     {func() ([]byte, error) { panic(failure) }, failure},
			"too large": {func() ([]byte, error) { return make([]byte, 64<<10+1), nil }, core.ErrInvalid},
		} {
			b.must(b.under("payment", func(ctx context.Context) (err error) {
				defer func() {
					if p := recover(); p != nil {
						err, _ = p.(error)
					}
					if !errors.Is(err, c.want) {
						t.Errorf("%s: %v", name, err)
					}
					err = nil
				}()
				_, err = b.store.Do(ctx, b.db, func(ctx context.Context, tx *sql.Tx) ([]byte, error) {
					if _, err := booking(ctx, tx); err != nil {
						return nil, err
					}
					return c.end()
				})
				return err
			}))
			for _, table := range []string{"effect", "lockkit_once", "lockkit_fence"} {
				b.wantNumber("SELECT COUNT(*) FROM "+table, 0)
			}
		}

		largest := strings.Repeat("x", 64<<10)
		b.must(b.under("payment", func(ctx context.Context) error {
			for _, want := range []error{nil, core.ErrDone} {
				result, err := b.store.Do(ctx, b.db, func(context.Context, *sql.Tx) ([]byte, error) { return []byte(largest), nil })
				if string(result) != largest || !errors.Is(err, want) {
					t.Errorf("%d bytes, %v", len(result), err)
				}
			}
			return nil
		}))
	})
}

// If fn returns that other work is done, or records the work a second time, the work of Do is not done, and Do does not
// say so.
func TestFunctionOfDoReturnsDone(t *testing.T) {
	each(t, func(t *testing.T, b *bank) {
		b.must(b.under("other", func(ctx context.Context) error { return second(b.store.Do(ctx, b.db, booking)) }))

		for name, helper := range map[string]func(ctx context.Context, tx *sql.Tx) error{
			"the same work": func(ctx context.Context, tx *sql.Tx) error { return b.store.Once(ctx, fence.SQL(tx)) },
			"other work": func(ctx context.Context, tx *sql.Tx) error {
				return b.store.Once(b.locks.WithWork(ctx, "other"), fence.SQL(tx))
			},
			"the sentinel": func(context.Context, *sql.Tx) error { return core.ErrDone },
		} {
			b.must(b.under("payment", func(ctx context.Context) error {
				result, err := b.store.Do(ctx, b.db, func(ctx context.Context, tx *sql.Tx) ([]byte, error) {
					if _, err := booking(ctx, tx); err != nil {
						return nil, err
					}
					return nil, helper(ctx, tx)
				})
				b.wantErr(err, core.ErrInvalid)
				if errors.Is(err, core.ErrDone) || result != nil {
					t.Errorf("%s: %q, %v", name, result, err)
				}
				return nil
			}))
		}
		b.wantNumber("SELECT COUNT(*) FROM effect", 1)
		b.wantNumber("SELECT COUNT(*) FROM lockkit_once", 1)
	})
}

// A holder that is stale does nothing, and gets no result.
func TestDoOfAStaleHolder(t *testing.T) {
	each(t, func(t *testing.T, b *bank) {
		b.must(b.locks.Do(b.named("payment"), "account", func(ctx context.Context) error {
			lease, _ := core.FromContext(ctx)
			b.must(b.write(lease))
			b.exec("UPDATE lockkit_fence SET token = token + 1") // a later holder has been at work

			result, err := b.store.Do(ctx, b.db, booking)
			b.wantResult(result, err, "", fence.ErrStale)
			b.wantErr(b.store.DoChecked(ctx, b.db, func(context.Context, *sql.Tx) error {
				t.Error("runs")
				return nil
			}), fence.ErrStale, core.ErrLost)
			return nil
		}))
		b.wantNumber("SELECT COUNT(*) FROM effect", 1)
		b.wantNumber("SELECT COUNT(*) FROM lockkit_once", 0)
	})
}

// The identity stays under other keys, so the work is the same work under each of them. Locker.Once names it by its key.
func TestDoUnderOtherKeys(t *testing.T) {
	each(t, func(t *testing.T, b *bank) {
		b.must(b.locks.Once(t.Context(), "a", func(ctx context.Context) error {
			_, err := b.store.Do(ctx, b.db, booking)
			b.must(err)
			return b.locks.Do(ctx, "b", func(ctx context.Context) error {
				result, err := b.store.Do(ctx, b.db, booking)
				b.wantResult(result, err, "booked", core.ErrDone)
				return nil
			})
		}))
		b.wantNumber("SELECT COUNT(*) FROM effect", 1)
		b.wantNumber("SELECT COUNT(*) FROM lockkit_fence", 1) // the check of the other key was rolled back
	})
}

// Under several leases, Do checks one of them. The function checks the others.
func TestDoUnderSeveralLeases(t *testing.T) {
	each(t, func(t *testing.T, b *bank) {
		keys := []string{"from", "to"}
		for _, key := range keys {
			b.must(b.locks.DoAll(b.named("transfer"), keys, func(ctx context.Context) error {
				lease, _ := b.locks.Holding(ctx, key)
				b.must(b.write(lease))
				before := b.number("SELECT COUNT(*) FROM effect")
				b.exec("UPDATE lockkit_fence SET token = token + 1") // a later holder of this key has been at work

				_, err := b.store.Do(ctx, b.db, func(ctx context.Context, tx *sql.Tx) ([]byte, error) {
					for _, other := range keys {
						lease, _ := b.locks.Holding(ctx, other)
						if err := b.store.CheckLease(ctx, fence.SQL(tx), lease); err != nil {
							return nil, err
						}
					}
					return booking(ctx, tx)
				})
				b.wantErr(err, fence.ErrStale)
				b.wantNumber("SELECT COUNT(*) FROM effect", before)
				b.exec("DELETE FROM lockkit_fence")
				return nil
			}))
		}
		b.wantNumber("SELECT COUNT(*) FROM lockkit_once", 0)
	})
}

// Two transactions of one work need names: without them, the second one is taken for a repetition of the first.
func TestSteps(t *testing.T) {
	each(t, func(t *testing.T, b *bank) {
		b.must(b.under("nameless", func(ctx context.Context) error {
			_, err := b.store.Do(ctx, b.db, booking)
			b.must(err)
			_, err = b.store.Do(ctx, b.db, booking)
			b.wantErr(err, core.ErrDone)
			return nil
		}))
		b.wantNumber("SELECT COUNT(*) FROM effect", 1)

		b.must(b.under("named", func(ctx context.Context) error {
			for _, want := range []error{nil, core.ErrDone} {
				for _, name := range []string{"debit", "credit"} {
					_, err := b.store.Do(fence.Step(ctx, name), b.db, booking)
					if !errors.Is(err, want) {
						t.Errorf("%s: %v", name, err)
					}
				}
			}
			nested := fence.Step(fence.Step(ctx, "debit"), "credit")
			_, err := b.store.Do(nested, b.db, booking)
			b.must(err)

			// Work with the parts of a step is no step.
			_, err = b.store.Do(b.locks.WithWork(ctx, "named", "step", "debit"), b.db, booking)
			b.must(err)

			// In a context that names other work, a step of the work before does not count.
			other := b.locks.WithWork(fence.Step(ctx, "debit"), "other")
			_, err = b.store.Do(other, b.db, booking)
			b.must(err)
			_, err = b.store.Do(b.locks.WithWork(ctx, "other"), b.db, booking)
			b.wantErr(err, core.ErrDone)
			return nil
		}))
		b.wantNumber("SELECT COUNT(*) FROM effect", 6)
	})
}

// A task that is several pieces of work names each of them, as the documentation of queuelock says: each happens once,
// although Locker.Once keeps the name of the task.
func TestMembersOfATask(t *testing.T) {
	each(t, func(t *testing.T, b *bank) {
		for _, task := range []string{"task", "another task with the same members"} {
			b.must(b.under(task, func(ctx context.Context) error {
				for _, id := range []string{"1", "2"} {
					member := b.locks.WithWork(ctx, "member", id)
					err := b.locks.Once(member, core.Key("member of "+task, id), func(ctx context.Context) error {
						return second(b.store.Do(ctx, b.db, booking))
					})
					if err != nil && !errors.Is(err, core.ErrDone) {
						return err
					}
				}
				return nil
			}))
			b.wantNumber("SELECT COUNT(*) FROM effect", 2)
		}
	})
}

// Once and SetResult in a transaction of one's own.
func TestOnceByHand(t *testing.T) {
	each(t, func(t *testing.T, b *bank) {
		b.must(b.under("payment", func(ctx context.Context) error {
			tx := b.begin(sql.LevelDefault)
			b.wantErr(b.store.SetResult(ctx, fence.SQL(tx), []byte("early")), core.ErrInvalid)
			b.must(b.store.Check(ctx, fence.SQL(tx)))
			b.must(b.store.Once(ctx, fence.SQL(tx)))
			b.must(b.store.SetResult(ctx, fence.SQL(tx), []byte("first")))
			b.wantErr(b.store.SetResult(ctx, fence.SQL(tx), []byte("second")), core.ErrInvalid)
			b.must(tx.Commit())

			tx = b.begin(sql.LevelDefault)
			err := b.store.Once(ctx, fence.SQL(tx))
			op, _ := errors.AsType[*core.OpError](err)
			b.wantErr(err, core.ErrDone)
			if string(op.Record.Result) != "first" {
				t.Errorf("%q", op.Record.Result)
			}
			b.must(tx.Rollback())
			return nil
		}))

		// Without a lease, Once works, and Check does not.
		ctx := b.named("without a lease")
		tx := b.begin(sql.LevelDefault)
		b.wantErr(b.store.Check(ctx, fence.SQL(tx)), core.ErrInvalid)
		b.must(b.store.Once(ctx, fence.SQL(tx)))
		b.must(b.store.SetResult(ctx, fence.SQL(tx), nil))
		b.must(tx.Commit())
		tx = b.begin(sql.LevelDefault)
		b.wantErr(b.store.Once(ctx, fence.SQL(tx)), core.ErrDone)
	})
}

// interrupted returns an error by which the database of b says that a transaction was rolled back because of others.
func (b *bank) interrupted() []error {
	switch b.dialect {
	case fence.PostgreSQL:
		return []error{&pgconn.PgError{Code: "40001"}, &pgconn.PgError{Code: "40P01"}}
	case fence.MariaDB:
		return []error{&mysql.MySQLError{Number: 1213}, &mysql.MySQLError{Number: 1205}}
	}
	impatient := must(sql.Open("sqlite", strings.Replace(b.connector.(connector).dsn, "busy_timeout(20000)", "busy_timeout(0)", 1)))
	defer impatient.Close()
	holder := b.begin(sql.LevelDefault)
	defer holder.Rollback()
	b.must(setBalance(holder, 100))
	_, err := impatient.Exec("UPDATE account SET balance = 100")
	return []error{err}
}

// Do and DoChecked repeat a transaction that others have made fail, and give up after ten.
func TestDoRepeatsWhatWasRolledBack(t *testing.T) {
	each(t, func(t *testing.T, b *bank) {
		for i, interruption := range b.interrupted() {
			if interruption == nil {
				t.Fatal("no error")
			}
			for failures, wantCalls := range map[int]int{0: 1, 3: 4, 9: 10, 1000: 10} {
				b.exec("DELETE FROM effect")
				calls := 0
				fn := func(ctx context.Context, tx *sql.Tx) ([]byte, error) {
					calls++
					result, err := booking(ctx, tx)
					if err == nil && calls <= failures {
						err = fmt.Errorf("wrapped: %w", interruption)
					}
					return result, err
				}
				want := interruption
				if failures < wantCalls {
					want = nil
				}
				b.must(b.under(fmt.Sprint("work ", i, failures), func(ctx context.Context) error {
					_, err := b.store.Do(ctx, b.db, fn)
					if !errors.Is(err, want) || calls != wantCalls {
						t.Errorf("Do: %d failures: %d calls, %v", failures, calls, err)
					}
					calls = 0
					err = b.store.DoChecked(ctx, b.db, func(ctx context.Context, tx *sql.Tx) error {
						_, err := fn(ctx, tx)
						return err
					})
					if !errors.Is(err, want) || calls != wantCalls {
						t.Errorf("DoChecked: %d failures: %d calls, %v", failures, calls, err)
					}
					return nil
				}))
				effects := int64(2)
				if want != nil {
					effects = 0
				}
				b.wantNumber("SELECT COUNT(*) FROM effect", effects)
			}
		}
	})
}

// When the context or the lease ends, nothing is repeated. A lost lease is a loss.
func TestDoEndsWithItsLease(t *testing.T) {
	each(t, func(t *testing.T, b *bank) {
		interruption := b.interrupted()[0]
		calls := 0
		err := b.under("payment", func(ctx context.Context) error {
			lease, _ := core.FromContext(ctx)
			_, err := b.store.Do(ctx, b.db, func(context.Context, *sql.Tx) ([]byte, error) {
				calls++
				b.must(lease.Extend(1))
				<-lease.Context().Done()
				return nil, interruption
			})
			b.wantErr(err, core.ErrLost)
			return nil
		})
		b.wantErr(err, core.ErrLost)
		if calls != 1 {
			t.Errorf("%d calls", calls)
		}
		b.wantNumber("SELECT COUNT(*) FROM lockkit_once", 0)
	})
}

// Wherever in Do the connection dies, before or after the server has carried out the operation, nothing or all is left,
// and a repetition does the work if it was not done.
func TestConnectionDiesInDo(t *testing.T) {
	each(t, func(t *testing.T, b *bank) {
		mortal, d := b.mortal()
		works, survived := int64(0), 0
		for _, after := range []bool{false, true} {
			for n := int64(1); ; n++ {
				work := fmt.Sprint("payment ", n, after)
				works++
				var err error
				var result []byte
				b.must(b.under(work, func(ctx context.Context) error {
					d.arm(n, after)
					result, err = mortal.store.Do(ctx, mortal.db, booking)
					return nil
				}))
				died := d.disarm()

				done := int64(0)
				switch {
				case err == nil:
					done = 1
					survived++
				case errors.Is(err, core.ErrDone), errors.Is(err, fence.ErrUnknown):
					t.Errorf("%s: %v", work, err)
				}
				if done == 1 && string(result) != "booked" {
					t.Errorf("%s: result %q", work, result)
				}
				b.wantNumber("SELECT COUNT(*) FROM effect", works-1+done)
				b.wantNumber("SELECT COUNT(*) FROM lockkit_once", works-1+done)

				b.must(b.under(work, func(ctx context.Context) error {
					result, err := b.store.Do(ctx, b.db, booking)
					if string(result) != "booked" || err != nil && !errors.Is(err, core.ErrDone) {
						t.Errorf("%s again: %q, %v", work, result, err)
					}
					return nil
				}))
				b.wantNumber("SELECT COUNT(*) FROM effect", works)
				if !died {
					break
				}
			}
		}
		if works < 12 || survived < 4 { // both deaths in COMMIT, and both transactions without a death
			t.Errorf("%d works, of which %d survived the death", works, survived)
		}
	})
}

// If fn hides the error of a statement, PostgreSQL answers COMMIT with a rollback. That is certain, and not ErrUnknown.
func TestFunctionHidesAnError(t *testing.T) {
	each(t, func(t *testing.T, b *bank) {
		b.must(b.under("", func(ctx context.Context) error {
			err := b.store.DoChecked(ctx, b.db, func(ctx context.Context, tx *sql.Tx) error {
				if _, err := booking(ctx, tx); err != nil {
					return err
				}
				_, _ = tx.ExecContext(ctx, "INSERT INTO nowhere VALUES (1)")
				return nil
			})
			isCommitted := b.number("SELECT COUNT(*) FROM effect") == 1
			if (err == nil) != isCommitted || errors.Is(err, fence.ErrUnknown) {
				t.Errorf("committed is %v: %v", isCommitted, err)
			}
			return nil
		}))
	})
}

// DoChecked does not repeat a transaction whose COMMIT has no answer, and says so.
func TestConnectionDiesInDoChecked(t *testing.T) {
	each(t, func(t *testing.T, b *bank) {
		mortal, d := b.mortal()
		unknown := 0
		for _, after := range []bool{false, true} {
			for n := int64(1); ; n++ {
				before := b.number("SELECT COUNT(*) FROM effect")
				calls := 0
				var err error
				b.must(b.under("", func(ctx context.Context) error {
					d.arm(n, after)
					err = mortal.store.DoChecked(ctx, mortal.db, func(ctx context.Context, tx *sql.Tx) error {
						calls++
						_, err := booking(ctx, tx)
						return err
					})
					return nil
				}))
				died := d.disarm()
				done := b.number("SELECT COUNT(*) FROM effect") - before
				switch {
				case errors.Is(err, fence.ErrUnknown):
					unknown++
					if core.ClassOf(err) != core.ClassOther || done > 1 {
						t.Errorf("operation %d: class %v, %d effects", n, core.ClassOf(err), done)
					}
				case err == nil && done != 1, err != nil && done != 0, calls > 1:
					t.Errorf("operation %d: %d effects of %d calls: %v", n, done, calls, err)
				}
				if !died {
					break
				}
			}
		}
		if unknown != 2 {
			t.Errorf("%d commits without an answer, want 2", unknown)
		}
	})
}

// If the context ends, or the lease is lost, before an operation of Do itself, the error says which it was. Nothing is left
// then, or all, and no connection stays in use.
func TestContextEndsInDo(t *testing.T) {
	each(t, func(t *testing.T, b *bank) {
		for i := range 12 {
			n, isLost := i/2+1, i%2 == 1 // begin, check, once, the function, the result, commit
			if n == 4 {
				continue // the error is that of the function
			}
			mortal, d := b.mortal()
			mortal.db.SetMaxOpenConns(1)
			work := fmt.Sprint("payment ", i)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			want := context.Canceled
			if isLost {
				want = core.ErrLost
			}

			var err error
			_ = b.locks.Do(b.locks.WithWork(ctx, work), work, func(ctx context.Context) error {
				lease, _ := core.FromContext(ctx)
				operations := 0
				d.before = func(string) {
					operations++
					switch {
					case operations != n:
						return
					case isLost:
						b.must(lease.Extend(1))
					default:
						cancel()
					}
					<-ctx.Done()
				}
				_, err = mortal.store.Do(ctx, mortal.db, booking)
				return nil
			})

			done := b.number("SELECT COUNT(*) FROM effect")
			isRight := (err == nil) == (done == 1) && (err == nil || errors.Is(err, want))
			if !isRight || done != b.number("SELECT COUNT(*) FROM lockkit_once") {
				t.Errorf("operation %d: %d effects: %v, want %v", n, done, err, want)
			}
			b.exec("DELETE FROM effect")
			b.exec("DELETE FROM lockkit_once")

			d.before = nil
			next := must(mortal.db.Begin()) // waits until the only connection is free
			b.must(b.store.CheckLease(t.Context(), fence.SQL(next), b.leases(work, 1)[0]))
			b.must(next.Rollback())
		}
	})
}

// If the context ends in COMMIT, Do finds out whether the work was done.
func TestContextEndsInCommit(t *testing.T) {
	each(t, func(t *testing.T, b *bank) {
		mortal, d := b.mortal()
		for i := range 5 {
			ctx, cancel := context.WithCancel(t.Context())
			end := func() { cancel() }
			d.onCommit.Store(&end)
			work := fmt.Sprint("payment ", i)
			var err error
			_ = b.locks.Do(b.locks.WithWork(ctx, work), work, func(ctx context.Context) error {
				_, err = mortal.store.Do(ctx, mortal.db, booking)
				return nil
			})
			d.onCommit.Store(nil)
			done := b.number("SELECT COUNT(*) FROM effect")
			if (err == nil) != (done == 1) || errors.Is(err, fence.ErrUnknown) || err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("%d effects: %v", done, err)
			}
			b.exec("DELETE FROM effect")
		}
	})
}

// If the database stays away, Do cannot find out whether the work was done. It asks for 10 s, by the clock of a bubble.
func TestUnknown(t *testing.T) {
	for _, on := range backends {
		t.Run(on.name, func(t *testing.T) {
			if on.dialect != fence.SQLite && !hasServers() {
				t.Skip("only with make fence")
			}
			t.Parallel()

			now := time.Now()
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(time.Until(now)) // the clock of the database is the real one
				testUnknown(t, newBank(t, on))
			})
		})
	}
}

func testUnknown(t *testing.T, b *bank) {
	mortal, d := b.mortal()
	gone := func() { d.isGone.Store(true) }
	d.onCommit.Store(&gone)
	began := time.Now()
	b.must(b.under("payment", func(ctx context.Context) error {
		_, err := mortal.store.Do(ctx, mortal.db, func(ctx context.Context, tx *sql.Tx) ([]byte, error) {
			result, err := booking(ctx, tx)
			d.arm(2, true) // the result is set, and then the transaction is committed
			return result, err
		})
		b.wantErr(err, fence.ErrUnknown)
		if core.ClassOf(err) != core.ClassOther {
			t.Errorf("class %v", core.ClassOf(err))
		}

		asked := time.Since(began)
		if asked < 9*time.Second || asked > 20*time.Second {
			t.Errorf("Do asked for %v", asked)
		}

		result, err := b.store.Do(ctx, b.db, booking)
		b.wantResult(result, err, "booked", core.ErrDone)
		return nil
	}))
	b.wantNumber("SELECT COUNT(*) FROM effect", 1)
}

// A transaction that waits too long for a row is repeated.
func TestLockWait(t *testing.T) {
	if !hasServers() {
		t.Skip("only with make fence")
	}
	t.Parallel()
	on := mariadbBackend("mariadb", func(c *mysql.Config) { c.Params = map[string]string{"innodb_lock_wait_timeout": "1"} })
	b := newBank(t, on)
	b.must(b.under("payment", func(ctx context.Context) error {
		lease, _ := core.FromContext(ctx)
		b.must(b.write(lease))
		holder := b.begin(sql.LevelDefault)
		b.must(b.store.Check(ctx, fence.SQL(holder)))
		time.AfterFunc(1500*time.Millisecond, func() { holder.Commit() })
		_, err := b.store.Do(ctx, b.db, booking)
		return err
	}))
	b.wantNumber("SELECT COUNT(*) FROM effect", 2)
}
