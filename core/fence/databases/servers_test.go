package databases

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

// The servers of the tests, which have started if hasServers.
var (
	postgresURL   string // without the name of the database
	mariadbConfig *mysql.Config
)

// hasServers reports whether PostgreSQL and MariaDB are part of the tests.
func hasServers() bool { return os.Getenv("LOCKKIT_FENCE") == "required" }

// startServers starts PostgreSQL and MariaDB in private directories, if they are part of the tests. fsync is off: the
// tests end processes, and not the machine.
func startServers() (stop func(), err error) {
	var started []*server
	stop = func() {
		for _, s := range started {
			s.stop()
		}
	}
	if !hasServers() {
		return stop, nil
	}

	for _, start := range []func() (*server, error){startPostgres, startMariaDB} {
		s, err := start()
		if err != nil {
			return stop, err
		}
		started = append(started, s)
	}
	return stop, nil
}

// A server is a process with a directory of its own.
type server struct {
	cmd  *exec.Cmd
	dir  string
	quit syscall.Signal // ends it at once
	gone chan struct{}
}

// find returns the path of a program, which may be beside PATH.
func find(name, pattern string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	found, _ := filepath.Glob(pattern)
	if len(found) == 0 {
		return "", fmt.Errorf("%s is not installed: make fence installs it", name)
	}
	return found[len(found)-1], nil
}

// run runs a program to its end, as the owner of dir.
func run(dir, path string, args ...string) error {
	cmd := exec.Command(path, args...)
	cmd.Dir = dir
	if err := asOther(cmd, dir); err != nil {
		return err
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", path, err, out)
	}
	return nil
}

// start starts a server, and waits until it answers.
func start(dir string, quit syscall.Signal, ping func() error, path string, args ...string) (*server, error) {
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	s := &server{cmd: exec.Command(path, args...), dir: dir, quit: quit, gone: make(chan struct{})}
	s.cmd.Dir = dir
	s.cmd.Stdout = log
	s.cmd.Stderr = log
	if err := asOther(s.cmd, dir); err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(s.gone)
		_ = s.cmd.Wait()
	}()

	deadline := time.After(2 * time.Minute)
	for {
		err := ping()
		if err == nil {
			return s, nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
			continue
		case <-s.gone:
		case <-deadline:
		}
		said, _ := os.ReadFile(log.Name())
		s.stop()
		return nil, fmt.Errorf("%s did not start: %w\n%s", path, err, said)
	}
}

func (s *server) stop() {
	_ = s.cmd.Process.Signal(s.quit) // it may be gone
	<-s.gone
	_ = os.RemoveAll(s.dir)
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

func startPostgres() (*server, error) {
	path, err := find("postgres", "/usr/lib/postgresql/*/bin/postgres")
	if err != nil {
		return nil, err
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return nil, err
	}
	initdb, err := find("initdb", "/usr/lib/postgresql/*/bin/initdb")
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "fence-*")
	if err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "data")
	if err := run(dir, initdb, "-D", data, "-A", "trust", "-U", "postgres", "--no-sync"); err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}

	postgresURL = fmt.Sprintf("postgres://postgres@127.0.0.1:%d/", port)
	ping := func() error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		conn, err := pgx.Connect(ctx, postgresURL+"postgres?sslmode=disable")
		if err != nil {
			return err
		}
		return conn.Close(ctx)
	}
	fsync := "fsync=" + fsyncSetting("on", "off")
	return start(dir, syscall.SIGINT, ping, path, "-D", data, "-p", fmt.Sprint(port), "-h", "127.0.0.1", "-k", "",
		"-c", fsync, "-c", "max_connections=300")
}

func startMariaDB() (*server, error) {
	path, err := find("mariadbd", "/usr/sbin/mariadbd")
	if err != nil {
		return nil, err
	}
	install, err := find("mariadb-install-db", "/usr/bin/mariadb-install-db")
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "fence-*")
	if err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "data")
	err = run(dir, install, "--no-defaults", "--datadir="+data, "--auth-root-authentication-method=normal", "--skip-test-db")
	if err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}

	mariadbConfig = mysql.NewConfig()
	mariadbConfig.User = "root"
	mariadbConfig.Net = "tcp"
	mariadbConfig.Addr = fmt.Sprintf("127.0.0.1:%d", port)
	ping := func() error {
		db := sql.OpenDB(must(mysql.NewConnector(mariadbConfig)))
		defer db.Close()
		return db.Ping()
	}
	return start(dir, syscall.SIGKILL, ping, path, "--no-defaults", "--datadir="+data, fmt.Sprintf("--port=%d", port),
		"--bind-address=127.0.0.1", "--socket="+filepath.Join(dir, "socket"), "--max-connections=300",
		"--innodb-flush-log-at-trx-commit="+fsyncSetting("1", "0"))
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
