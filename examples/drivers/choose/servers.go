package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/examples/internal/newnodes"
	"github.com/lockkit/lockkit/testutil"
)

// A missingError says that a server is not installed.
type missingError struct{ what, install, env string }

func (e *missingError) Error() string {
	return fmt.Sprintf("%s is not installed: %s", e.what, e.install)
}

// required reports whether that is an error: LOCKKIT_ETCD=required.
func (e *missingError) required() bool { return os.Getenv(e.env) == "required" }

// startRedis starts one node and three.
func startRedis(ctx context.Context) ([]backend, func(), error) {
	if missing := (&missingError{"redis-server", "apt-get install redis-server", "LOCKKIT_REDIS"}); !testutil.ServerAvailable() && missing.required() {
		return nil, nil, missing
	}
	one, err := testutil.StartNodes(1)
	if err != nil {
		return nil, nil, err
	}
	three, err := testutil.StartNodes(3)
	if err != nil {
		one.Close()
		return nil, nil, err
	}
	stop := func() { one.Close(); three.Close() }
	locker, err := core.Open(three.URLs(), core.TTL(ttl))
	if err == nil { // new nodes would wait until what they may have forgotten is over
		err = errors.Join(newnodes.Declare(ctx, locker), locker.Close(ctx))
	}
	if err != nil {
		stop()
		return nil, nil, err
	}
	return []backend{
		{"lockkit", one.URLs(), "lockkit, 1 Redis"},
		{"lockkit", three.URLs(), "lockkit, 3 Redis"},
	}, stop, nil
}

// startEtcds starts an etcd of one member and one of three.
func startEtcds(ctx context.Context) ([]backend, func(), error) {
	path, err := exec.LookPath("etcd")
	if err != nil {
		return nil, nil, &missingError{"etcd", "apt-get install etcd-server", "LOCKKIT_ETCD"}
	}
	one, stopOne, err := startEtcd(ctx, path, 1)
	if err != nil {
		return nil, nil, err
	}
	three, stopThree, err := startEtcd(ctx, path, 3)
	if err != nil {
		stopOne()
		return nil, nil, err
	}
	return []backend{
		{"etcd", one, "etcd, 1 member"},
		{"etcd", three, "etcd, 3 members"},
	}, func() { stopOne(); stopThree() }, nil
}

func startEtcd(ctx context.Context, path string, members int) (endpoints []string, stop func(), err error) {
	ports, err := freePorts(2 * members)
	if err != nil {
		return nil, nil, err
	}
	url := func(port int) string { return fmt.Sprintf("http://127.0.0.1:%d", port) }
	var cluster []string
	for i := range members {
		endpoints, cluster = append(endpoints, url(ports[2*i])), append(cluster, fmt.Sprintf("m%d=%s", i, url(ports[2*i+1])))
	}
	var servers []*server
	stop = func() {
		for _, s := range servers {
			s.stop()
		}
	}
	for i := range members {
		client, peer := endpoints[i], url(ports[2*i+1])
		s, err := newServer(path, syscall.SIGKILL)
		if err != nil {
			stop()
			return nil, nil, err
		}
		s.cmd.Args = append(s.cmd.Args, "--name", fmt.Sprintf("m%d", i), "--data-dir", filepath.Join(s.dir, "data"),
			"--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer,
			"--initial-advertise-peer-urls", peer, "--initial-cluster", strings.Join(cluster, ","))
		s.cmd.Env = append(os.Environ(), "ETCD_UNSUPPORTED_ARCH="+runtime.GOARCH) // without it old etcds refuse arm64
		if err := s.start(); err != nil {
			stop()
			return nil, nil, err
		}
		servers = append(servers, s)
	}
	for i, s := range servers {
		if err := s.await(ctx, func() error { return healthy(ctx, endpoints[i]+"/health") }); err != nil {
			stop()
			return nil, nil, err
		}
	}
	return endpoints, stop, nil
}

func healthy(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return nil
}

// postgresBin is where PostgreSQL's programs are: Debian has them beside PATH.
func postgresBin() (string, error) {
	if path, err := exec.LookPath("postgres"); err == nil {
		return filepath.Dir(path), nil
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if err != nil || len(found) == 0 {
		return "", &missingError{"PostgreSQL", "apt-get install postgresql", "LOCKKIT_POSTGRES"}
	}
	return filepath.Dir(found[len(found)-1]), nil
}

func startPostgres(ctx context.Context) ([]backend, func(), error) {
	url, s, err := newPostgres(ctx)
	if err != nil {
		return nil, nil, err
	}
	return []backend{{"postgres", []string{url}, "PostgreSQL, FOR UPDATE NOWAIT"}}, s.stop, nil
}

func newPostgres(ctx context.Context) (url string, s *server, err error) {
	bin, err := postgresBin()
	if err != nil {
		return "", nil, err
	}
	ports, err := freePorts(1)
	if err != nil {
		return "", nil, err
	}
	if s, err = newServer(filepath.Join(bin, "postgres"), syscall.SIGINT); err != nil {
		return "", nil, err
	}
	data := filepath.Join(s.dir, "data")
	initdb := exec.CommandContext(ctx, filepath.Join(bin, "initdb"), "-D", data, "-A", "trust", "-U", "postgres", "--no-sync", "--no-instructions")
	initdb.Dir = s.dir
	err = errors.Join(asNobody(initdb, s.dir), asNobody(s.cmd, s.dir))
	if err == nil {
		var out []byte
		if out, err = initdb.CombinedOutput(); err != nil {
			err = fmt.Errorf("initdb: %w: %s", err, out)
		}
	}
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(s.dir))
	}
	s.cmd.Args = append(s.cmd.Args, "-D", data, "-p", fmt.Sprint(ports[0]), "-h", "127.0.0.1", "-k", "")
	url = fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", ports[0])
	if err = s.start(); err == nil {
		err = s.await(ctx, func() error { return answers(ctx, url) })
	}
	if err != nil {
		s.stop()
		return "", nil, err
	}
	return url, s, nil
}

func answers(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

// A server is a process with a directory of its own.
type server struct {
	cmd  *exec.Cmd
	quit syscall.Signal // has it end at once
	dir  string
	log  *os.File
	gone chan struct{}
}

func newServer(path string, quit syscall.Signal) (*server, error) {
	dir, err := os.MkdirTemp("", "choose-*")
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path)
	cmd.Dir = dir
	return &server{cmd: cmd, quit: quit, dir: dir}, nil
}

func (s *server) start() (err error) {
	if s.log, err = os.Create(filepath.Join(s.dir, "log")); err != nil {
		return err
	}
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	dieWithParent(s.cmd, s.quit)
	s.gone = make(chan struct{})
	started := make(chan error)
	go func() {
		defer close(s.gone)
		runtime.LockOSThread() // whose end the kernel takes for the parent's
		defer runtime.UnlockOSThread()
		err := s.cmd.Start()
		started <- err
		if err == nil {
			_ = s.cmd.Wait() // who asks why reads the log
		}
	}()
	return <-started
}

// await waits until ready returns nil.
func (s *server) await(ctx context.Context, ready func() error) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		err := ready()
		if err == nil {
			return nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
			continue
		case <-s.gone:
		case <-ctx.Done():
		}
		said, _ := os.ReadFile(s.log.Name())
		return fmt.Errorf("%s did not start: %w; its log:\n%s", s.cmd.Path, err, said)
	}
}

// stop ends the process, waits for it, and removes its files.
func (s *server) stop() {
	if s.gone != nil {
		if s.cmd.Process != nil {
			_ = s.cmd.Process.Signal(s.quit) // it may be gone
		}
		<-s.gone
	}
	if s.log != nil {
		_ = s.log.Close()
	}
	_ = os.RemoveAll(s.dir)
}

func freePorts(n int) ([]int, error) {
	var ports []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}
