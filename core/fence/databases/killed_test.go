package databases

import (
	"bufio"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"modernc.org/sqlite"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/fence"
	"github.com/lockkit/lockkit/testutil"
)

// The environment of a victim, which is a process that calls Do and is killed.
const (
	victimOf   = "LOCKKIT_FENCE_VICTIM" // the name of the dialect
	victimDSN  = "LOCKKIT_FENCE_DSN"
	victimLock = "LOCKKIT_FENCE_LOCK" // the URL of the node for locks
	victimWork = "LOCKKIT_FENCE_WORK"
)

// isVictim reports whether this process is a victim.
func isVictim() bool { return os.Getenv(victimOf) != "" }

// playVictim calls Do. Before each operation of its connection, it prints the operation, and waits for a line.
func playVictim() error {
	connector, err := connectorOf(os.Getenv(victimOf), os.Getenv(victimDSN))
	if err != nil {
		return err
	}
	orders := bufio.NewReader(os.Stdin)
	announce := func(operation string) {
		fmt.Println(operation)
		_, err := orders.ReadString('\n')
		if err != nil {
			os.Exit(1) // the test is gone
		}
	}
	db := sql.OpenDB(&dying{Connector: connector, before: announce})

	locks, err := openLocks(os.Getenv(victimLock))
	if err != nil {
		return err
	}
	ctx := locks.WithWork(context.Background(), os.Getenv(victimWork))
	err = locks.Do(ctx, "victim of "+os.Getenv(victimWork), func(ctx context.Context) error {
		_, err := fence.New(dialectOf(os.Getenv(victimOf))).Do(ctx, db, booking)
		return err
	})
	if err != nil {
		return err
	}
	announce(finished)
	return nil
}

// finished is the line of a victim after Do has returned nil.
const finished = "finished"

// openLocks opens a Locker. Its leases are longer than the test.
func openLocks(url string) (*core.Locker, error) {
	return core.Open([]string{url}, core.TTL(time.Minute), core.WithClockWindow(5*time.Second))
}

func dialectOf(name string) fence.Dialect {
	for _, d := range []fence.Dialect{fence.PostgreSQL, fence.MariaDB, fence.SQLite} {
		if d.String() == name {
			return d
		}
	}
	return 0
}

func connectorOf(dialect, dsn string) (driver.Connector, error) {
	switch dialectOf(dialect) {
	case fence.PostgreSQL:
		config, err := pgx.ParseConfig(dsn)
		if err != nil {
			return nil, err
		}
		return stdlib.GetConnector(*config), nil
	case fence.MariaDB:
		config, err := mysql.ParseDSN(dsn)
		if err != nil {
			return nil, err
		}
		return mysql.NewConnector(config)
	}
	return connector{&sqlite.Driver{}, dsn}, nil
}

// A killing is a bank with victims. They connect by a proxy, if the database is a server.
type killing struct {
	*bank
	locks   *core.Locker
	lockURL string
	proxy   *testutil.Proxy // nil for SQLite
	dsn     string          // of the victims; each of their operations is one request
}

// eachKilling runs f on each database that is here.
func eachKilling(t *testing.T, f func(t *testing.T, k *killing)) {
	each(t, func(t *testing.T, b *bank) {
		if b.name == "mariadb" {
			t.Skip("victims connect to MariaDB in one way")
		}
		f(t, newKilling(t, b))
	})
}

func newKilling(t *testing.T, b *bank) *killing {
	t.Helper()
	addr, err := testutil.NewNodes(t, 1)[0].Listen()
	b.must(err)
	k := &killing{bank: b, lockURL: "redis://" + addr}
	k.locks = must(openLocks(k.lockURL))
	t.Cleanup(func() { k.locks.Close(context.Background()) })

	switch b.dialect {
	case fence.PostgreSQL:
		config := must(pgx.ParseConfig(postgresURL))
		k.proxy = testutil.NewProxy(t, fmt.Sprintf("%s:%d", config.Host, config.Port))
		name := k.text("SELECT current_database()")
		k.dsn = fmt.Sprintf("postgres://postgres@%s/%s?sslmode=disable&default_query_exec_mode=exec", k.proxy.Addr(), name)
	case fence.MariaDB:
		config := mariadbConfig.Clone()
		k.proxy = testutil.NewProxy(t, config.Addr)
		config.Addr = k.proxy.Addr()
		config.DBName = k.text("SELECT DATABASE()")
		config.InterpolateParams = true
		k.dsn = config.FormatDSN()
	case fence.SQLite:
		k.dsn = b.connector.(connector).dsn
	}
	return k
}

func (k *killing) text(query string) (s string) {
	k.Helper()
	k.must(k.db.QueryRow(query).Scan(&s))
	return s
}

// again does the work once more in this process, under another key: the lease of the victim lives.
func (k *killing) again(work string) (result []byte, err error) {
	err = k.locks.Do(k.locks.WithWork(k.Context(), work), "again "+work, func(ctx context.Context) (err error) {
		result, err = k.store.Do(ctx, k.db, booking)
		return err
	})
	return result, err
}

// A victim is the process.
type victim struct {
	cmd   *exec.Cmd
	stdin io.Writer
	lines *bufio.Reader
	said  strings.Builder // on stderr
}

// start starts a victim that does the work.
func (k *killing) start(work string) *victim {
	k.Helper()
	v := &victim{cmd: exec.Command(must(os.Executable()))}
	v.cmd.Env = append(os.Environ(), victimOf+"="+k.dialect.String(), victimDSN+"="+k.dsn, victimLock+"="+k.lockURL, victimWork+"="+work)
	v.cmd.Stderr = &v.said
	v.stdin = must(v.cmd.StdinPipe())
	v.lines = bufio.NewReader(must(v.cmd.StdoutPipe()))
	k.must(v.cmd.Start())
	k.Cleanup(func() {
		v.kill() // where a check has failed before
	})
	return v
}

// next returns the operation that the victim has announced.
func (k *killing) next(v *victim) (operation string) {
	k.Helper()
	line, err := v.lines.ReadString('\n')
	if err != nil {
		v.kill()
		k.Fatalf("the victim has ended: %v: %s", err, v.said.String())
	}
	return strings.TrimSuffix(line, "\n")
}

// goOn lets the victim carry out the operation that it has announced.
func (v *victim) goOn() { fmt.Fprintln(v.stdin) }

// kill kills the victim (SIGKILL), and returns when it is gone.
func (v *victim) kill() {
	_ = v.cmd.Process.Kill()
	_ = v.cmd.Wait()
}

// advance lets the victim carry out n operations, and returns the operation that it has announced then, or finished if
// Do has ended before.
func (k *killing) advance(v *victim, n int) (operation string) {
	k.Helper()
	for range n {
		operation = k.next(v)
		if operation == finished {
			return finished
		}
		v.goOn()
	}
	return k.next(v)
}

// swallow makes the proxy lose answers from now on, and returns a channel that is closed with the first of them.
func (k *killing) swallow() (answered <-chan struct{}) {
	seen := make(chan struct{})
	first := sync.OnceFunc(func() { close(seen) })
	k.proxy.Mangle(testutil.ToClient, func([]byte) []byte {
		first()
		return nil
	})
	return seen
}

// Wherever in Do the process is killed, before an operation is sent or after the server has carried it out and before the
// answer arrives, nothing or all is left, and a repetition settles it.
func TestProcessIsKilledInDo(t *testing.T) {
	eachKilling(t, func(t *testing.T, k *killing) {
		works := int64(0)

		// kill kills a victim at its n-th operation, checks that nothing or all is left, and does the work once more.
		kill := func(n int, swallows bool) (operation string) {
			works++
			work := fmt.Sprint("payment ", works)
			v := k.start(work)
			operation = k.advance(v, n)
			if swallows && operation != finished {
				answered := k.swallow()
				v.goOn()
				testutil.Receive(t, answered)
			}
			v.kill()
			if k.proxy != nil {
				k.proxy.Mangle(testutil.ToClient, nil)
			}

			done := int64(0)
			want := error(nil)
			if operation == finished || swallows && operation == "commit" {
				done = 1
				want = core.ErrDone
			}
			k.wantNumber("SELECT COUNT(*) FROM effect", works-1+done)
			k.wantNumber("SELECT COUNT(*) FROM lockkit_once", works-1+done)

			result, err := k.again(work)
			k.wantResult(result, err, "booked", want)
			k.wantNumber("SELECT COUNT(*) FROM effect", works)
			if t.Failed() {
				t.Fatalf("killed at operation %d, %s, of which the answer was swallowed: %v", n, operation, swallows)
			}
			return operation
		}

		commits := 0
		for n := 0; ; n++ {
			operation := kill(n, false)
			if operation == finished {
				break
			}
			if k.proxy != nil {
				operation = kill(n, true)
			}
			if operation == "commit" {
				commits++
			}
		}
		if works < 7 || commits != 1 {
			t.Errorf("%d kills, of which %d in COMMIT", works, commits)
		}
	})
}

// If the server does not notice that the process is dead, as after the loss of its machine, the transaction stays open. A
// repetition waits for it.
func TestServerDoesNotNoticeTheDeath(t *testing.T) {
	waiting := map[fence.Dialect]string{
		fence.PostgreSQL: `SELECT COUNT(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()`,
		fence.MariaDB:    `SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() AND info LIKE 'INSERT INTO lockkit_once%'`,
	}
	eachKilling(t, func(t *testing.T, k *killing) {
		if k.proxy == nil {
			t.Skip("SQLite has no server")
		}
		v := k.start("payment")
		for k.next(v) != "commit" {
			v.goOn()
		}
		k.proxy.BlackHole(testutil.ToServer, true) // the end of the connection, too
		v.kill()

		ended := make(chan error, 1)
		go func() {
			result, err := k.again("payment")
			if string(result) != "booked" {
				err = errors.Join(err, fmt.Errorf("result %q", result))
			}
			ended <- err
		}()
		testutil.Await(t, "a repetition that waits", func() bool { return k.number(waiting[k.dialect]) > 0 })
		k.wantNumber("SELECT COUNT(*) FROM effect", 0)

		k.proxy.Cut() // the server notices
		k.must(testutil.Receive(t, ended))
		k.wantNumber("SELECT COUNT(*) FROM effect", 1)
	})
}

// If only the connection breaks in COMMIT, Do finds out whether the transaction was committed, with the real errors of the
// drivers.
func TestAnswerToCommitIsLost(t *testing.T) {
	eachKilling(t, func(t *testing.T, k *killing) {
		if k.proxy == nil {
			t.Skip("SQLite has no server")
		}
		d := &dying{Connector: must(connectorOf(k.dialect.String(), k.dsn))}
		db := sql.OpenDB(d)
		t.Cleanup(func() { db.Close() })

		for work, c := range map[string]struct {
			fault func()
			calls int
		}{
			"the request is lost": {k.proxy.Cut, 2},
			"the answer is lost":  {k.proxy.DropNextReply, 1},
		} {
			k.exec("DELETE FROM effect")
			fault := sync.OnceFunc(c.fault)
			d.onCommit.Store(&fault)
			calls := 0
			k.must(k.under(work, func(ctx context.Context) error {
				result, err := k.store.Do(ctx, db, func(ctx context.Context, tx *sql.Tx) ([]byte, error) {
					calls++
					return booking(ctx, tx)
				})
				k.wantResult(result, err, "booked", nil)
				return err
			}))
			if calls != c.calls {
				t.Errorf("%s: %d calls, want %d", work, calls, c.calls)
			}
			k.wantNumber("SELECT COUNT(*) FROM effect", 1)
		}
	})
}
