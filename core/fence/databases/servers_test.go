package databases

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/lockkit/lockkit/internal/dbserver"
)

// The servers of the tests, which have started if hasServers.
var (
	postgresURL   string // without the name of the database
	mariadbConfig *mysql.Config
)

// hasServers reports whether PostgreSQL and MariaDB are part of the tests.
func hasServers() bool { return os.Getenv("LOCKKIT_FENCE") == "required" }

// startServers starts PostgreSQL and MariaDB, if they are part of the tests. fsync is off: the tests end processes, and
// not the machine.
func startServers() (stop func(), err error) {
	var started []*dbserver.Server
	stop = func() {
		for _, s := range started {
			s.Close()
		}
	}
	if !hasServers() {
		return stop, nil
	}

	for _, start := range []func() (*dbserver.Server, error){startPostgres, startMariaDB} {
		s, err := start()
		if err != nil {
			return stop, err
		}
		started = append(started, s)
	}
	return stop, nil
}

func startPostgres() (*dbserver.Server, error) {
	ping := func(addr string) error {
		postgresURL = "postgres://postgres@" + addr + "/"
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		conn, err := pgx.Connect(ctx, postgresURL+"postgres?sslmode=disable")
		if err != nil {
			return err
		}
		return conn.Close(ctx)
	}
	return dbserver.StartPostgreSQL(ping, "fsync="+fsyncSetting("on", "off"), "max_connections=300")
}

func startMariaDB() (*dbserver.Server, error) {
	ping := func(addr string) error {
		mariadbConfig = mysql.NewConfig()
		mariadbConfig.User = "root"
		mariadbConfig.Net = "tcp"
		mariadbConfig.Addr = addr
		db := sql.OpenDB(must(mysql.NewConnector(mariadbConfig)))
		defer db.Close()
		return db.Ping()
	}
	return dbserver.StartMariaDB(ping, "max-connections=300", "innodb-flush-log-at-trx-commit="+fsyncSetting("1", "0"))
}

// fsyncSetting returns on if the benchmarks run, which are to pay for fsync.
func fsyncSetting(on, off string) string {
	if os.Getenv("LOCKKIT_FSYNC") == "on" {
		return on
	}
	return off
}

// postgresDatabase creates a database, and returns how to connect to it.
func postgresDatabase(t testing.TB) driver.Connector {
	name := fmt.Sprintf("fence%d", serial.Add(1))
	admin := sql.OpenDB(stdlib.GetConnector(*must(pgx.ParseConfig(postgresURL + "postgres?sslmode=disable"))))
	defer admin.Close()
	if _, err := admin.Exec("CREATE DATABASE " + name); err != nil {
		t.Fatal(err)
	}
	return stdlib.GetConnector(*must(pgx.ParseConfig(postgresURL + name + "?sslmode=disable")))
}

// mariadbDatabase creates a database, and returns how to connect to it. Its default collation equates many texts.
func mariadbDatabase(t testing.TB) *mysql.Config {
	c := mariadbConfig.Clone()
	c.DBName = fmt.Sprintf("fence%d", serial.Add(1))
	admin := sql.OpenDB(must(mysql.NewConnector(mariadbConfig)))
	defer admin.Close()
	if _, err := admin.Exec("CREATE DATABASE " + c.DBName + " COLLATE utf8mb4_general_ci"); err != nil {
		t.Fatal(err)
	}
	return c
}
