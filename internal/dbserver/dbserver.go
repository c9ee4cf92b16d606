// Package dbserver starts PostgreSQL and MariaDB in private directories, for tests and demos. It imports no driver.
package dbserver

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/lockkit/lockkit/internal/freeport"
)

// ErrMissing means that the server is not installed.
var ErrMissing = errors.New("not installed: make fence installs it")

const (
	startTime = 2 * time.Minute // of a server, on a machine that is busy
	pause     = 50 * time.Millisecond
)

// A Server is the process of a database server in a private directory. On Linux, it also dies with the calling process.
type Server struct {
	Addr string // host:port

	cmd  *exec.Cmd
	dir  string
	quit syscall.Signal // ends it at once
	gone chan struct{}
}

// StartPostgreSQL starts a PostgreSQL, and returns when ping does not fail any more. The superuser is postgres, and has
// no password. settings are lines of postgresql.conf, such as "fsync=off". The caller must Close the server.
func StartPostgreSQL(ping func(addr string) error, settings ...string) (*Server, error) {
	path, err := find("postgres", "/usr/lib/postgresql/*/bin/postgres")
	if err != nil {
		return nil, err
	}

	path, err = filepath.EvalSymlinks(path) // it looks for its files beside itself
	if err != nil {
		return nil, err
	}

	initdb, err := find("initdb", "/usr/lib/postgresql/*/bin/initdb")
	if err != nil {
		return nil, err
	}

	s := &Server{quit: syscall.SIGINT}
	setUp := func(data string) error {
		return s.run(initdb, "-D", data, "-A", "trust", "-U", "postgres", "--no-sync")
	}
	command := func(data, host, port string) *exec.Cmd {
		cmd := exec.Command(path, "-D", data, "-h", host, "-p", port, "-k", "")
		for _, setting := range settings {
			cmd.Args = append(cmd.Args, "-c", setting)
		}
		return cmd
	}
	return s, s.start(setUp, command, ping)
}

// StartMariaDB starts a MariaDB, and returns when ping does not fail any more. The superuser is root, and has no
// password. settings are lines of a file of options, such as "max-connections=300". The caller must Close the server.
func StartMariaDB(ping func(addr string) error, settings ...string) (*Server, error) {
	path, err := find("mariadbd", "/usr/sbin/mariadbd")
	if err != nil {
		return nil, err
	}

	install, err := find("mariadb-install-db", "/usr/bin/mariadb-install-db")
	if err != nil {
		return nil, err
	}

	s := &Server{quit: syscall.SIGKILL}
	setUp := func(data string) error {
		return s.run(install, "--no-defaults", "--datadir="+data, "--auth-root-authentication-method=normal", "--skip-test-db")
	}
	command := func(data, host, port string) *exec.Cmd {
		socket := filepath.Join(s.dir, "socket")
		cmd := exec.Command(path, "--no-defaults", "--datadir="+data, "--bind-address="+host, "--port="+port, "--socket="+socket)
		for _, setting := range settings {
			cmd.Args = append(cmd.Args, "--"+setting)
		}
		return cmd
	}
	return s, s.start(setUp, command, ping)
}

// find returns the path of a program, which may be beside PATH.
func find(name, pattern string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil {
		return path, nil
	}

	found, _ := filepath.Glob(pattern)
	if len(found) == 0 {
		return "", fmt.Errorf("%s is %w", name, ErrMissing)
	}
	return found[len(found)-1], nil
}

// start creates the directory and the files of the server, and starts it on a free port. If it fails, nothing is left.
func (s *Server) start(
	setUp func(data string) error, command func(data, host, port string) *exec.Cmd, ping func(addr string) error,
) (err error) {
	s.dir, err = os.MkdirTemp("", "dbserver-*")
	if err != nil {
		return err
	}

	data := filepath.Join(s.dir, "data")
	err = setUp(data)
	if err == nil {
		err = freeport.Try(func(addr string) error {
			s.Addr = addr
			host, port, err := net.SplitHostPort(addr)
			if err != nil {
				return err
			}
			return s.startProcess(command(data, host, port), ping)
		})
	}

	if err != nil {
		_ = os.RemoveAll(s.dir)
	}
	return err
}

// run runs a program to its end, as the owner of the directory.
func (s *Server) run(path string, args ...string) error {
	cmd := exec.Command(path, args...)
	cmd.Dir = s.dir

	err := adjust(cmd, s.dir)
	if err != nil {
		return err
	}

	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", path, err, out)
	}
	return nil
}

// startProcess starts the server, and waits until it answers. The error has the log of the server.
func (s *Server) startProcess(cmd *exec.Cmd, ping func(addr string) error) error {
	log, err := os.Create(filepath.Join(s.dir, "log"))
	if err != nil {
		return err
	}
	defer log.Close()

	cmd.Dir = s.dir
	cmd.Stdout = log
	cmd.Stderr = log
	err = adjust(cmd, s.dir)
	if err != nil {
		return err
	}

	s.cmd = cmd
	s.gone = make(chan struct{})
	started := make(chan error)
	go s.supervise(started)
	err = <-started
	if err != nil {
		return err
	}

	deadline := time.After(startTime)
	for {
		err := ping(s.Addr)
		if err == nil {
			return nil
		}

		select {
		case <-time.After(pause):
			continue
		case <-s.gone:
		case <-deadline:
		}

		s.end()
		said, _ := os.ReadFile(log.Name())
		return fmt.Errorf("%s did not start: %w\n%s", cmd.Path, err, said)
	}
}

// supervise starts the process, and waits for its end on the same thread: the kernel takes the end of the thread for
// the end of this process.
func (s *Server) supervise(started chan<- error) {
	defer close(s.gone)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	err := s.cmd.Start()
	started <- err
	if err == nil {
		_ = s.cmd.Wait() // the log says how it ended
	}
}

// end ends the process, and waits for its end.
func (s *Server) end() {
	_ = s.cmd.Process.Signal(s.quit) // it may be gone
	<-s.gone
}

// Close ends the server, and removes its directory.
func (s *Server) Close() {
	s.end()
	_ = os.RemoveAll(s.dir)
}
