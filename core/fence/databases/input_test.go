package databases

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/fence"
)

func nothing(context.Context, *sql.Tx) ([]byte, error) { return nil, nil }

// Bad input is an error that says what to do, and nothing is written.
func TestBadInput(t *testing.T) {
	each(t, func(t *testing.T, b *bank) {
		tx := b.begin(sql.LevelDefault)
		ended := b.begin(sql.LevelDefault)
		b.must(ended.Rollback())
		b.must(b.under("payment", func(ctx context.Context) error {
			bare := t.Context()
			lease, _ := core.FromContext(ctx)
			nameless := b.locks.WithWork(ctx)
			unfit := fence.New(0)
			var none *fence.Store
			for said, err := range map[string]error{
				"the transaction is nil":                 b.store.Check(ctx, nil),
				"the transaction is nil ":                b.store.Check(ctx, fence.SQL(nil)),
				"the context is nil":                     b.store.Check(nil, fence.SQL(tx)), //nolint:staticcheck // on purpose
				"the context has no lease":               b.store.Check(bare, fence.SQL(tx)),
				"was not made by core.Locker.Acquire or": b.store.CheckLease(ctx, fence.SQL(tx), nil),
				"core.Locker.WithWork":                   b.store.Once(nameless, fence.SQL(tx)),
				"core.Locker.WithWork ":                  b.store.SetResult(nameless, fence.SQL(tx), nil),
				"the dialect is none of":                 unfit.Check(ctx, fence.SQL(tx)),
				"the dialect is none of ":                none.CheckLease(ctx, fence.SQL(tx), lease),
				"the *sql.DB is nil":                     second(b.store.Do(ctx, nil, nothing)),
				"the function is nil":                    second(b.store.Do(ctx, b.db, nil)),
				"the function is nil ":                   b.store.DoChecked(ctx, b.db, nil),
				"the context has no lease ":              second(b.store.Do(b.named("x"), b.db, nothing)),
				"core.Locker.WithWork  ":                 second(b.store.Do(nameless, b.db, nothing)),
				"the dialect is none of  ":               second(unfit.Do(ctx, b.db, nothing)),
				"the dialect is none of   ":              second(unfit.Clean(ctx, b.db)),
				"the *sql.DB is nil ":                    second(b.store.Clean(ctx, nil)),
				"WithRetention(1s)":                      second(b.store.WithRetention(time.Second)),
			} {
				b.wantErr(err, core.ErrInvalid)
				b.wantSaid(err, trimmed(said))
			}
			if fence.New(0).Schema() != "" || none.Schema() != "" {
				t.Error("a schema of no dialect")
			}

			for _, err := range []error{
				b.store.Check(ctx, fence.SQL(ended)),
				b.store.Once(ctx, fence.SQL(ended)),
				b.store.SetResult(ctx, fence.SQL(ended), nil),
			} {
				b.wantErr(err, sql.ErrTxDone)
				b.wantSaid(err, "the transaction has ended: begin a new one")
			}
			return nil
		}))
		b.must(tx.Commit())
		b.wantNumber("SELECT COUNT(*) FROM lockkit_fence", 0)
		b.wantNumber("SELECT COUNT(*) FROM lockkit_once", 0)
	})
}

func second[T any](_ T, err error) error { return err }

// trimmed returns a text without the blanks at its end, which make it a key of its own.
func trimmed(text string) string {
	for len(text) > 0 && text[len(text)-1] == ' ' {
		text = text[:len(text)-1]
	}
	return text
}

// A server that does not speak the dialect is named as the cause.
func TestDialectDoesNotFit(t *testing.T) {
	each(t, func(t *testing.T, b *bank) {
		for _, dialect := range []fence.Dialect{fence.PostgreSQL, fence.MariaDB, fence.SQLite} {
			if dialect == b.dialect {
				continue
			}
			other := fence.New(dialect)
			b.must(b.under("payment", func(ctx context.Context) error {
				b.wantSaid(second(other.Do(ctx, b.db, booking)), "the dialect is "+dialect.String())
				return nil
			}))
		}
		b.wantNumber("SELECT COUNT(*) FROM effect", 0)
		b.wantNumber("SELECT COUNT(*) FROM lockkit_fence", 0)
	})
}

// Missing tables are named, with how to create them.
func TestTablesAreMissing(t *testing.T) {
	each(t, func(t *testing.T, b *bank) {
		b.exec("DROP TABLE lockkit_once")
		b.must(b.under("payment", func(ctx context.Context) error {
			b.wantSaid(second(b.store.Do(ctx, b.db, booking)), "create the tables", "lockctl fence-schema "+b.dialect.String())
			return nil
		}))
		b.wantNumber("SELECT COUNT(*) FROM lockkit_fence", 0)
		b.exec("DROP TABLE lockkit_fence")
		b.wantSaid(b.write(b.leases("account", 1)[0]), "create the tables", "lockctl fence-schema "+b.dialect.String())
		b.wantSaid(second(b.store.Clean(t.Context(), b.db)), "create the tables")
		b.wantNumber("SELECT COUNT(*) FROM effect", 0)
	})
}

// Tables that cannot roll back are refused before anything is written.
func TestEngineCannotRollBack(t *testing.T) {
	each(t, func(t *testing.T, b *bank) {
		if b.dialect != fence.MariaDB {
			return
		}
		b.exec("ALTER TABLE lockkit_once ENGINE = MyISAM")
		b.must(b.under("payment", func(ctx context.Context) error {
			err := second(b.store.Do(ctx, b.db, booking))
			b.wantErr(err, core.ErrInvalid)
			b.wantSaid(err, "lockkit_once (MyISAM)", "InnoDB")
			return nil
		}))
		b.wantNumber("SELECT COUNT(*) FROM lockkit_once", 0)
		b.wantNumber("SELECT COUNT(*) FROM lockkit_fence", 0)
		b.exec("ALTER TABLE lockkit_once ENGINE = InnoDB")
		b.must(b.write(b.leases("account", 1)[0]))
	})
}

// The statements for MariaDB have their values in the text. No mode of SQL changes what they mean.
func TestModesOfSQL(t *testing.T) {
	if !hasServers() {
		t.Skip("only with make fence")
	}
	for _, mode := range []string{
		"", "TRADITIONAL", "ORACLE", "EMPTY_STRING_IS_NULL", "SIMULTANEOUS_ASSIGNMENT",
		"ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT",
		"NO_UNSIGNED_SUBTRACTION,HIGH_NOT_PRECEDENCE,IGNORE_SPACE,PAD_CHAR_TO_FULL_LENGTH,TIME_ROUND_FRACTIONAL",
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			b := newBank(t, mariadbBackend("mariadb", func(c *mysql.Config) {
				c.Params = map[string]string{"sql_mode": "'" + mode + "'", "time_zone": "'+13:00'"}
			}))

			for i, text := range []string{"", "a\x00b'\"\\", strings.Repeat("\x00'", 32<<10)} {
				for _, want := range []error{nil, core.ErrDone} {
					b.must(b.under(fmt.Sprint("payment ", i), func(ctx context.Context) error {
						result, err := b.store.Do(ctx, b.db, func(context.Context, *sql.Tx) ([]byte, error) { return []byte(text), nil })
						b.wantResult(result, err, text, want)
						return nil
					}))
				}
			}

			leases := b.leases("account", 2)
			b.must(b.write(leases[1]))
			b.wantErr(b.write(leases[0]), fence.ErrStale)

			b.exec("UPDATE lockkit_once SET expires_at = 1")
			deleted, err := b.store.Clean(t.Context(), b.db)
			if deleted != 3 || err != nil {
				t.Errorf("%d deleted, %v", deleted, err)
			}
		})
	}
}

// Clean commits what it deletes, even if the connections commit no statement by themselves.
func TestCleanWithoutAutocommit(t *testing.T) {
	if !hasServers() {
		t.Skip("only with make fence")
	}
	t.Parallel()
	b := newBank(t, mariadbBackend("mariadb", func(*mysql.Config) {}))
	b.must(b.under("payment", func(ctx context.Context) error { return second(b.store.Do(ctx, b.db, booking)) }))
	b.exec("UPDATE lockkit_once SET expires_at = 1")

	c := mariadbConfig.Clone()
	b.must(b.db.QueryRow("SELECT DATABASE()").Scan(&c.DBName))
	c.Params = map[string]string{"autocommit": "0"}
	db := sql.OpenDB(must(mysql.NewConnector(c)))
	defer db.Close()

	deleted, err := b.store.Clean(t.Context(), db)
	if deleted != 1 || err != nil {
		t.Errorf("%d deleted, %v", deleted, err)
	}
	b.wantNumber("SELECT COUNT(*) FROM lockkit_once", 0)
}

// The question for the engines takes no snapshot: a transaction whose first statement is the first Check of a Store sees
// what was committed before its first read.
func TestFirstCheckTakesNoSnapshot(t *testing.T) {
	each(t, func(t *testing.T, b *bank) {
		if b.dialect != fence.MariaDB {
			return
		}
		lease := b.leases("account", 1)[0]
		tx := b.begin(sql.LevelRepeatableRead)
		b.must(b.store.CheckLease(t.Context(), fence.SQL(tx), lease))
		b.exec("UPDATE account SET balance = 90")
		if balance := must(balanceOf(tx)); balance != 90 {
			t.Errorf("the transaction reads %d", balance)
		}
	})
}

// A pgxTx is a transaction of pgx for fence. The package document has this code.
type pgxTx struct{ tx pgx.Tx }

func (t pgxTx) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	tag, err := t.tx.Exec(ctx, query, args...)
	return tag.RowsAffected(), err
}

func (t pgxTx) QueryRow(ctx context.Context, query string, args ...any) fence.Row {
	return t.tx.QueryRow(ctx, query, args...)
}

// A transaction of pgx is as good as one of database/sql.
func TestPgx(t *testing.T) {
	each(t, func(t *testing.T, b *bank) {
		if b.dialect != fence.PostgreSQL {
			return
		}
		old := longAgo(t, "old")
		leases := b.leases("account", 2)
		conn := must(b.db.Conn(t.Context()))
		defer conn.Close()
		b.must(conn.Raw(func(c any) error {
			pg := c.(*stdlib.Conn).Conn()
			try := func(f func(tx fence.Tx) error) error {
				tx := must(pg.Begin(t.Context()))
				defer tx.Rollback(t.Context())
				if err := f(pgxTx{tx}); err != nil {
					return err
				}
				return tx.Commit(t.Context())
			}
			check := func(lease *core.Lease) error {
				return try(func(tx fence.Tx) error { return b.store.CheckLease(t.Context(), tx, lease) })
			}
			b.must(check(leases[1]))
			b.must(check(leases[1]))
			b.wantErr(check(leases[0]), fence.ErrStale)
			b.wantErr(check(old), fence.ErrTooOld)

			ctx := b.named("payment")
			once := func(tx fence.Tx) error {
				return errors.Join(b.store.Once(ctx, tx), b.store.SetResult(ctx, tx, []byte("booked")))
			}
			b.must(try(once))
			err := try(once)
			b.wantErr(err, core.ErrDone)
			if op, ok := errors.AsType[*core.OpError](err); !ok || string(op.Record.Result) != "booked" {
				t.Errorf("%+v", op)
			}

			tx := must(pg.Begin(t.Context()))
			b.must(tx.Rollback(t.Context()))
			b.wantSaid(b.store.CheckLease(t.Context(), pgxTx{tx}, leases[1]), "closed")
			return nil
		}))
	})
}
