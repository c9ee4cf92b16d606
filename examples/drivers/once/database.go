package main

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/lockkit/lockkit/internal/dbserver"
	"github.com/lockkit/lockkit/testutil"
)

// answerTime is how long an answer of PostgreSQL takes, so that many a process is killed while it waits for one.
const answerTime = 5 * time.Millisecond

// A database has the payments of the shop.
type database struct {
	*sql.DB
	flags []string // for the processes
	close func()
}

// A payment is a row of the shop's table.
type payment struct{ receipt, order string }

func openDatabase(kind, dir string) (*database, error) {
	switch kind {
	case "sqlite":
		return openSQLite(filepath.Join(dir, "payments.db"))
	case "postgresql":
		return openPostgreSQL()
	}
	return nil, fmt.Errorf("-on %s: it must be sqlite or postgresql", kind)
}

func openSQLite(file string) (*database, error) {
	db, err := sql.Open("sqlite", "file:"+file+"?_pragma=busy_timeout(10000)")
	if err != nil {
		return nil, err
	}
	return &database{db, []string{"-sqlite", file}, func() { db.Close() }}, nil
}

// openPostgreSQL starts a PostgreSQL. The processes connect to it by a proxy that is slow.
func openPostgreSQL() (*database, error) {
	url := func(addr string) string { return "postgres://postgres@" + addr + "/postgres?sslmode=disable" }
	ping := func(addr string) error {
		db, err := sql.Open("pgx", url(addr))
		if err != nil {
			return err
		}
		defer db.Close()
		return db.Ping()
	}
	server, err := dbserver.StartPostgreSQL(ping)
	if err != nil {
		return nil, err
	}

	proxy, err := testutil.StartProxy(server.Addr)
	if err != nil {
		server.Close()
		return nil, err
	}
	proxy.Delay(testutil.ToClient, answerTime)

	db, err := sql.Open("pgx", url(server.Addr))
	if err != nil {
		proxy.Close()
		server.Close()
		return nil, err
	}
	return &database{db, []string{"-postgres", url(proxy.Addr())}, func() {
		db.Close()
		proxy.Close()
		server.Close()
	}}, nil
}

// payments returns all payments.
func (d *database) payments(ctx context.Context) (all []payment, err error) {
	rows, err := d.QueryContext(ctx, "SELECT receipt, order_id FROM payment")
	if err != nil {
		return nil, err
	}
	defer rows.Close()

	for rows.Next() {
		var p payment
		err := rows.Scan(&p.receipt, &p.order)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, rows.Err()
}

// bookedTwice returns an order with more than one payment, or "".
func (d *database) bookedTwice(ctx context.Context) (order string, err error) {
	const query = "SELECT COALESCE(MIN(order_id), '') FROM (SELECT order_id FROM payment GROUP BY order_id HAVING COUNT(*) > 1) AS twice"
	err = d.QueryRowContext(ctx, query).Scan(&order)
	return order, err
}
