package databases

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/fence"
)

// A way is a kind of transaction that is measured beside others. All of them insert one effect.
type way struct {
	name  string
	begin func(ctx context.Context, b *bank, tx *sql.Tx, n int) error // runs before the effect; nil does nothing
	run   func(ctx context.Context, b *bank, n int) error             // is the whole transaction, if it is set
}

const (
	bare, checked, byHand, once, whole = "the effect alone", "with Check", "with an INSERT by hand", "with Once", "Do"
)

var ways = []way{
	{name: bare},
	{name: checked, begin: func(ctx context.Context, b *bank, tx *sql.Tx, _ int) error {
		return b.store.Check(ctx, fence.SQL(tx))
	}},
	{name: byHand, begin: func(ctx context.Context, b *bank, tx *sql.Tx, n int) error {
		statement := "INSERT INTO done (id, token, expires_at) VALUES (?, ?, ?)"
		if b.dialect == fence.PostgreSQL {
			statement = "INSERT INTO done (id, token, expires_at) VALUES ($1, $2, $3)"
		}
		lease, _ := core.FromContext(ctx)
		_, err := tx.ExecContext(ctx, statement, fmt.Sprint("payment ", n), lease.FencingToken(), time.Now().UnixMicro())
		return err
	}},
	{name: once, begin: func(ctx context.Context, b *bank, tx *sql.Tx, _ int) error {
		return b.store.Once(ctx, fence.SQL(tx))
	}},
	{name: whole, run: func(ctx context.Context, b *bank, _ int) error {
		_, err := b.store.Do(ctx, b.db, b.effect)
		return err
	}},
}

// effect inserts the effect, with a parameter.
func (b *bank) effect(ctx context.Context, tx *sql.Tx) ([]byte, error) {
	statement := "INSERT INTO effect (token) VALUES (?)"
	if b.dialect == fence.PostgreSQL {
		statement = "INSERT INTO effect (token) VALUES ($1)"
	}
	lease, _ := core.FromContext(ctx)
	_, err := tx.ExecContext(ctx, statement, lease.FencingToken())
	return []byte("booked"), err
}

// transact runs the n-th transaction of its kind.
func (w way) transact(ctx context.Context, b *bank, n int) {
	work := b.locks.WithWork(ctx, w.name, fmt.Sprint(n))
	if w.run != nil {
		b.must(w.run(work, b, n))
		return
	}

	tx, err := b.db.BeginTx(work, nil)
	b.must(err)
	if w.begin != nil {
		b.must(w.begin(work, b, tx, n))
	}
	_, err = b.effect(work, tx)
	b.must(err)
	b.must(tx.Commit())
}

// figureRounds is how many transactions of each kind are measured, and warmUp how many run before, which open connections
// and fill caches.
const figureRounds, warmUp = 800, 50

// measure runs one transaction of each kind in turn, so that what else the machine does hits all alike, and returns the
// median time of each kind.
func measure(ctx context.Context, b *bank) map[string]time.Duration {
	times := map[string][]time.Duration{}
	for round := range warmUp + figureRounds {
		for i := range ways {
			w := ways[(round+i)%len(ways)]
			began := time.Now()
			w.transact(ctx, b, round)
			if round >= warmUp {
				times[w.name] = append(times[w.name], time.Since(began))
			}
		}
	}

	medians := map[string]time.Duration{}
	for name, all := range times {
		slices.Sort(all)
		medians[name] = all[len(all)/2]
	}
	return medians
}

// ratio returns the ratio of the medians of two kinds.
func ratio(times map[string]time.Duration, of, to string) float64 {
	return float64(times[of]) / float64(times[to])
}

// TestFigures measures what fence costs, and writes docs/benchmarks/fence.md below the directory that LOCKKIT_FENCE_DOCS
// names: make bench-fence sets it.
func TestFigures(t *testing.T) {
	docs := os.Getenv("LOCKKIT_FENCE_DOCS")
	if docs == "" {
		t.Skip("only with make bench-fence")
	}

	var text bytes.Buffer
	fmt.Fprint(&text, figuresHead)
	goals := "| goal | " + strings.Join(backendNames(), " | ") + " |\n| - |" + strings.Repeat(" -: |", len(backends)) + "\n"
	var check, record []string
	var servers []string
	for _, on := range backends {
		b := newBank(t, on)
		b.exec("CREATE TABLE done (id VARCHAR(200) PRIMARY KEY, token BIGINT NOT NULL, expires_at BIGINT NOT NULL)")
		servers = append(servers, b.version())

		var times map[string]time.Duration
		b.must(b.locks.Do(t.Context(), "account", func(ctx context.Context) error {
			times = measure(ctx, b)
			return nil
		}))

		fmt.Fprintf(&text, "\n## %s\n\n| transaction | median | to %s |\n| - | -: | -: |\n", titles[on.name], bare)
		for _, w := range ways {
			fmt.Fprintf(&text, "| %s | %d µs | %.2f× |\n", w.name, times[w.name].Microseconds(), ratio(times, w.name, bare))
		}
		check = append(check, fmt.Sprintf("%.2f×", ratio(times, checked, bare)))
		record = append(record, fmt.Sprintf("%.2f×", ratio(times, once, byHand)))
	}

	fmt.Fprint(&text, "\n## Goals\n\nA goal that is missed fails nothing: the disk and what runs beside decide more than the statement.\n\n", goals)
	fmt.Fprintf(&text, "| %s to %s: ≤ 1.50× | %s |\n", checked, bare, strings.Join(check, " | "))
	fmt.Fprintf(&text, "| %s to %s: ≤ 1.30× | %s |\n", once, byHand, strings.Join(record, " | "))
	fmt.Fprintf(&text, "\nThis run: %s. %s/%s, %d cores, %s. %s.\n", time.Now().UTC().Format("2006-01-02 15:04 UTC"),
		runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version(), strings.Join(slices.Compact(servers), ", "))

	path := filepath.Join(docs, "benchmarks", "fence.md")
	if err := os.WriteFile(path, text.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s\n%s", path, &text)
}

const figuresHead = `# What core/fence costs

<!-- Written by make bench-fence. Do not edit. -->

Transactions that insert one row, an effect, and what fence adds to them, in one run on one machine: the databases are on its
disk, and each COMMIT waits for the disk (fsync). The kinds of transactions take turns, 800 of each; times are medians. The
INSERT by hand is of a row with a primary key, a token and a time. Do has Check, Once and the result. On a disk that takes
longer to sync, and with more work in the transaction, the ratios are smaller.

The effect and the INSERT by hand have parameters. For each such statement, go-sql-driver/mysql sends two more messages,
unless its DSN has interpolateParams=true. The statements of fence have none in MariaDB.
`

// titles are the headings of the databases, by the names of their backends.
var titles = map[string]string{
	"sqlite":              "SQLite",
	"postgresql":          "PostgreSQL",
	"mariadb":             "MariaDB",
	"mariadb, found rows": "MariaDB, interpolateParams=true",
}

func backendNames() (names []string) {
	for _, on := range backends {
		names = append(names, titles[on.name])
	}
	return names
}

// version returns the name and version of the database.
func (b *bank) version() string {
	b.Helper()
	query := map[fence.Dialect]string{
		fence.SQLite:     "SELECT 'SQLite ' || sqlite_version()",
		fence.PostgreSQL: "SELECT 'PostgreSQL ' || split_part(current_setting('server_version'), ' ', 1)",
		fence.MariaDB:    "SELECT CONCAT('MariaDB ', SUBSTRING_INDEX(VERSION(), '-', 1))",
	}
	var version string
	b.must(b.db.QueryRow(query[b.dialect]).Scan(&version))
	return version
}
