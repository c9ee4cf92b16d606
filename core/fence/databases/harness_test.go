package databases

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9/logging"
	"modernc.org/sqlite"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/fence"
	"github.com/lockkit/lockkit/testutil"
	"github.com/lockkit/lockkit/testutil/locktest"
)

func TestMain(m *testing.M) {
	logging.Disable()
	_ = mysql.SetLogger(log.New(io.Discard, "", 0)) // the driver prints each connection that breaks
	if isVictim() {
		err := playVictim()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}

	code := func() int {
		stop, err := startServers()
		defer stop()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}()
	os.Exit(code)
}

// A backend is a kind of database, with one way to connect to it.
type backend struct {
	name    string
	dialect fence.Dialect
	levels  []sql.IsolationLevel
	schema  string                              // of the tables of the tests
	connect func(t testing.TB) driver.Connector // to a new database
}

// A bank is a database with the tables of fence, a balance of 100 and a log of effects.
type bank struct {
	testing.TB
	backend
	connector driver.Connector
	db        *sql.DB
	store     *fence.Store
	locks     *locktest.Locker
}

var backends = []backend{
	{
		name:    "sqlite",
		dialect: fence.SQLite,
		levels:  []sql.IsolationLevel{sql.LevelDefault},
		schema: `CREATE TABLE effect (serial INTEGER PRIMARY KEY AUTOINCREMENT, token INTEGER NOT NULL);
			CREATE TABLE account (balance INTEGER NOT NULL)`,
		connect: func(t testing.TB) driver.Connector {
			file := filepath.Join(t.TempDir(), "db")
			return connector{&sqlite.Driver{}, "file:" + file + "?_pragma=journal_mode(WAL)&_pragma=synchronous(" + fsyncSetting("FULL", "OFF") + ")&_pragma=busy_timeout(20000)"}
		},
	},
	{
		name:    "postgresql",
		dialect: fence.PostgreSQL,
		levels:  []sql.IsolationLevel{sql.LevelReadUncommitted, sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable},
		schema: `CREATE TABLE effect (serial bigserial PRIMARY KEY, token bigint NOT NULL);
			CREATE TABLE account (balance bigint NOT NULL)`,
		connect: func(t testing.TB) driver.Connector { return postgresDatabase(t) },
	},
	mariadbBackend("mariadb", func(*mysql.Config) {}),
	mariadbBackend("mariadb, found rows", func(c *mysql.Config) { c.ClientFoundRows = true; c.InterpolateParams = true }),
}

func mariadbBackend(name string, adjust func(*mysql.Config)) backend {
	return backend{
		name:    name,
		dialect: fence.MariaDB,
		levels:  []sql.IsolationLevel{sql.LevelReadUncommitted, sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable},
		schema: `CREATE TABLE effect (serial BIGINT AUTO_INCREMENT PRIMARY KEY, token BIGINT NOT NULL) ENGINE=InnoDB;
			CREATE TABLE account (balance BIGINT NOT NULL) ENGINE=InnoDB`,
		connect: func(t testing.TB) driver.Connector {
			c := mariadbDatabase(t)
			adjust(c)
			return must(mysql.NewConnector(c))
		},
	}
}

// A connector connects with a data source name.
type connector struct {
	driver driver.Driver
	dsn    string
}

func (c connector) Connect(context.Context) (driver.Conn, error) { return c.driver.Open(c.dsn) }
func (c connector) Driver() driver.Driver                        { return c.driver }

// each runs f on each database that is here.
func each(t *testing.T, f func(t *testing.T, b *bank)) {
	t.Helper()
	for _, on := range backends {
		t.Run(on.name, func(t *testing.T) {
			if on.dialect != fence.SQLite && !hasServers() {
				t.Skip("only with make fence")
			}
			t.Parallel()
			f(t, newBank(t, on))
		})
	}
}

func newBank(t testing.TB, on backend) *bank {
	t.Helper()
	b := &bank{TB: t, backend: on, connector: on.connect(t), store: fence.New(on.dialect)}
	b.db = sql.OpenDB(b.connector)
	t.Cleanup(func() { b.db.Close() })
	for _, statement := range strings.Split(b.store.Schema()+on.schema, ";") {
		if strings.TrimSpace(statement) != "" {
			b.exec(statement)
		}
	}
	b.exec("INSERT INTO account VALUES (100)")
	// Leases that last for long, on a machine that may stand still, and that a test can end.
	b.locks = locktest.NewOn(t, testutil.NewNodes(t, 1),
		core.TTL(time.Minute), core.WithClockWindow(5*time.Second), core.MaxHold(time.Hour))
	return b
}

// must returns v, and panics on an error, which only a fault of the test or the machine can cause.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func (b *bank) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (b *bank) exec(statement string, args ...any) {
	b.Helper()
	if _, err := b.db.Exec(statement, args...); err != nil {
		b.Fatalf("%s: %v", statement, err)
	}
}

// number returns the number that a query returns.
func (b *bank) number(query string) (n int64) {
	b.Helper()
	b.must(b.db.QueryRow(query).Scan(&n))
	return n
}

// wantNumber checks the number that a query returns.
func (b *bank) wantNumber(query string, want int64) {
	b.Helper()
	if n := b.number(query); n != want {
		b.Errorf("%s: %d, want %d", query, n, want)
	}
}

// wantErr checks that err matches all of want.
func (b *bank) wantErr(err error, want ...error) {
	b.Helper()
	for _, w := range want {
		if !errors.Is(err, w) {
			b.Errorf("%v does not match %v", err, w)
		}
	}
}

// wantSaid checks that the text of an error has all parts.
func (b *bank) wantSaid(err error, parts ...string) {
	b.Helper()
	for _, part := range parts {
		if err == nil || !strings.Contains(err.Error(), part) {
			b.Errorf("%v does not say %q", err, part)
		}
	}
}

// leases returns n leases on the key, each of them released, in the order of their tokens.
func (b *bank) leases(key string, n int) (all []*core.Lease) {
	b.Helper()
	for range n {
		lease, err := b.locks.Acquire(b.Context(), key)
		b.must(err)
		testutil.Await(b, "released", func() bool { return lease.Release(b.Context()) == nil }) // late on a busy machine
		all = append(all, lease)
	}
	return all
}

// begin begins a transaction.
func (b *bank) begin(level sql.IsolationLevel) *sql.Tx {
	b.Helper()
	tx, err := b.db.BeginTx(b.Context(), &sql.TxOptions{Isolation: level})
	b.must(err)
	b.Cleanup(func() { tx.Rollback() })
	return tx
}

// write writes an effect under a lease, in a transaction that begins with a check.
func (b *bank) write(lease *core.Lease) error {
	tx := b.begin(sql.LevelDefault)
	defer tx.Rollback()
	if err := b.store.CheckLease(b.Context(), fence.SQL(tx), lease); err != nil {
		return err
	}
	if err := book(b.Context(), tx, lease); err != nil {
		return err
	}
	return tx.Commit()
}

// book writes an effect.
func book(ctx context.Context, tx *sql.Tx, lease *core.Lease) error {
	_, err := tx.ExecContext(ctx, fmt.Sprintf("INSERT INTO effect (token) VALUES (%d)", lease.FencingToken()))
	return err
}

// booking is work for Do: it writes an effect, and returns its result.
func booking(ctx context.Context, tx *sql.Tx) ([]byte, error) {
	lease, _ := core.FromContext(ctx)
	return []byte("booked"), book(ctx, tx, lease)
}

// serial makes the names of databases.
var serial atomic.Int32

// under runs f under a lease on a new key, as the work of that name.
func (b *bank) under(work string, f func(ctx context.Context) error) error {
	b.Helper()
	return b.locks.Do(b.named(work), fmt.Sprintf("key %d", serial.Add(1)), f)
}

// named returns a context with the work of that name, or none for "".
func (b *bank) named(work string) context.Context {
	if work == "" {
		return b.Context()
	}
	return b.locks.WithWork(b.Context(), work)
}
