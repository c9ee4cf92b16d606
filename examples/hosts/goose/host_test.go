package goose

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/pressly/goose/v3"
	_ "modernc.org/sqlite"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/examples/hosts/internal/replica"
)

// The environment of a process.
const (
	databaseFile = "HOST_DATABASE"
	lockless     = "HOST_LOCKLESS"
)

// What a process says.
const (
	migrating = "migrating"
	migrated  = "migrated" // and how many migrations it has applied
	notDone   = "not migrated"
)

// held is what a process says when another one migrates.
var held = replica.Held + core.Key("migrations", "accounts")

func TestMain(m *testing.M) { replica.Main(m, migrate) }

// migrate is a process that starts, and migrates its database before anything else. The second migration must not be
// applied twice. It waits for the test.
func migrate(self *replica.Self) error {
	db, err := openDatabase(os.Getenv(databaseFile))
	if err != nil {
		return err
	}
	files := fstest.MapFS{"1_accounts.sql": {Data: []byte(`-- +goose Up
		CREATE TABLE account (owner TEXT PRIMARY KEY, euros INTEGER NOT NULL);
		INSERT INTO account VALUES ('ann', 7);`)}}
	toCents := goose.NewGoMigration(2, &goose.GoFunc{RunTx: func(ctx context.Context, tx *sql.Tx) error {
		self.Say(migrating)
		self.Hear()
		for _, change := range []string{
			"ALTER TABLE account RENAME COLUMN euros TO cents", // fails the second time
			"UPDATE account SET cents = cents * 100",
		} {
			_, err := tx.ExecContext(ctx, change)
			if err != nil {
				return err
			}
		}
		return nil
	}}, nil)

	options := []goose.ProviderOption{goose.WithGoMigrations(toCents)}
	if os.Getenv(lockless) == "" {
		lock, err := newMigrationLock(self.Locker, "accounts")
		if err != nil {
			return err
		}
		options = append(options, goose.WithLocker(lock))
	}
	provider, err := goose.NewProvider(goose.DialectSQLite3, db, files, options...)
	if err != nil {
		return err
	}

	results, err := provider.Up(context.Background())
	if err != nil {
		self.Say("%s: %s", notDone, strings.ReplaceAll(err.Error(), "\n", "; "))
	} else {
		self.Say("%s: %d", migrated, len(results))
	}
	self.Hear()
	return nil
}

func openDatabase(file string) (*sql.DB, error) {
	return sql.Open("sqlite", "file:"+file+"?_pragma=busy_timeout(60000)")
}

// A database is a file that processes migrate.
type database struct {
	t     *testing.T
	file  string
	nodes *replica.Nodes
}

func newDatabase(t *testing.T, ttl time.Duration) *database {
	t.Helper()
	return &database{t, filepath.Join(t.TempDir(), "accounts.db"), replica.StartNodes(t, ttl)}
}

// start starts a process that migrates the database.
func (d *database) start(name string, env ...string) *replica.Replica {
	d.t.Helper()
	return d.nodes.Start(name, append(env, databaseFile+"="+d.file)...)
}

// wantMigrated fails the test unless the database was migrated once.
func (d *database) wantMigrated() {
	d.t.Helper()
	db, err := openDatabase(d.file)
	if err != nil {
		d.t.Fatal(err)
	}
	defer db.Close()

	var cents, times int
	const query = "SELECT cents, (SELECT COUNT(*) FROM goose_db_version WHERE version_id = 2) FROM account"
	err = db.QueryRow(query).Scan(&cents, &times)
	if err != nil || cents != 700 || times != 1 {
		d.t.Errorf("%d cents after %d migrations, error %v", cents, times, err)
	}
}

// Ten processes start at once. One of them migrates, and the others find nothing to do.
func TestGooseMigratesOnce(t *testing.T) {
	t.Parallel()
	const processes = 10
	d := newDatabase(t, replica.Long)
	first := d.start("first")
	first.Await(migrating)
	var others []*replica.Replica
	for i := range processes - 1 {
		others = append(others, d.start(fmt.Sprint("other ", i)))
	}
	for _, r := range others {
		r.Await(held)
	}

	first.Tell("go on")
	first.Await(migrated + ": 2")
	for _, r := range others {
		r.Await(migrated + ": 0")
	}
	d.wantMigrated()
}

// What the lock is for: without it, a second process begins the migration beside the first one.
func TestGooseWithoutLockBeginsTwice(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, replica.Long)
	for _, name := range []string{"one", "other"} {
		d.start(name, lockless+"=yes").Await(migrating)
	}
}

// The process that migrates is killed. SQLite rolls its migration back, and another process migrates after the TTL.
func TestGooseHolderIsKilled(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, replica.Usual)
	one := d.start("one")
	one.Await(migrating)
	other := d.start("other")
	other.Await(held)
	one.Kill()

	other.Await(migrating)
	other.Tell("go on")
	other.Await(migrated + ": 1")
	d.wantMigrated()
}

// The process that migrates loses its lock, and another one migrates. goose is not told before it unlocks, so the first
// process goes on. Its migration fails in the database, and the loss is part of its error.
func TestGooseHolderLosesItsLock(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, replica.Usual)
	one := d.start("one")
	one.Await(migrating)
	other := d.start("other")
	other.Await(held)
	one.CutOff()
	one.AwaitLoss()

	other.Await(migrating)
	other.Tell("go on")
	other.Await(migrated + ": 1")
	one.Reconnect()
	one.Tell("go on")
	line := one.Await(notDone)
	if !strings.Contains(line, "no such column") || !strings.Contains(line, "lease lost") {
		t.Error(line)
	}
	d.wantMigrated()
}
