package testutil

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	portTries    = 10
	startTimeout = 15 * time.Second
)

// Server is a redis-server process on a port of 127.0.0.1, without
// persistence. Its methods are safe for concurrent use.
type Server struct {
	dir     string
	port    int
	busPort int      // of a Cluster's server
	config  []string // a configuration file, which comes first
	args    []string

	mu      sync.Mutex
	own     *redis.Client // for what tests ask of the server itself
	process *process      // the latest, which may be dead
	clients []*redis.Client
	closed  bool
}

// process is one run of redis-server. The goroutine that started it waits for
// its end and then closes exited.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{}
}

// ServerAvailable reports whether there is a redis-server to run.
func ServerAvailable() bool {
	_, err := exec.LookPath("redis-server")
	return err == nil
}

// StartServer runs redis-server in a new directory below dir ("" for the
// system's temporary directory) and returns when it answers. extraArgs follow
// the server's own and override them. The caller must Close it; on Linux it
// also dies with the calling process, however that ends.
//
// An error means that nothing is left running, and says what to do about it.
func StartServer(dir string, extraArgs ...string) (*Server, error) {
	return startWith(dir, nil, extraArgs)
}

// startWith is StartServer with a configuration file, if there is one.
func startWith(dir string, config, extraArgs []string) (*Server, error) {
	if !ServerAvailable() {
		return nil, errors.New("testutil: no redis-server in PATH: install it (`make test` does), or use embedded nodes")
	}
	own, err := os.MkdirTemp(dir, "redis-*")
	if err != nil {
		return nil, fmt.Errorf("testutil: directory for redis-server: %w", err)
	}
	s := &Server{dir: own, config: config, args: extraArgs}
	if err := s.startOnFreePort(); err != nil {
		_ = os.RemoveAll(own)
		return nil, err
	}
	return s, nil
}

// startOnFreePort chooses the port and starts the process.
func (s *Server) startOnFreePort() (err error) {
	for range portTries {
		// Another process may take the port before the server binds it.
		s.port, err = freePort()
		if err != nil {
			return err
		}
		err = s.start()
		if !errors.Is(err, errPortTaken) {
			return err
		}
	}
	return err
}

// NewServers starts n servers and closes them when the test ends, also by a panic.
// Without a redis-server it skips the test, or fails it if the environment has
// LOCKKIT_REDIS=required.
func NewServers(tb testing.TB, n int, extraArgs ...string) []*Server {
	tb.Helper()
	needServer(tb)
	servers := make([]*Server, n)
	for i := range servers {
		s, err := StartServer(tb.TempDir(), extraArgs...)
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(s.Close)
		servers[i] = s
	}
	return servers
}

// needServer skips or fails a test that has no redis-server.
func needServer(tb testing.TB) {
	tb.Helper()
	if ServerAvailable() {
		return
	}
	const missing = "NO redis-server IN PATH: this test needs a real Redis. `make test` installs one."
	if os.Getenv("LOCKKIT_REDIS") == "required" {
		tb.Fatal(missing)
	}
	tb.Skip(missing)
}

// Addr is the server's host:port, the same over restarts.
func (s *Server) Addr() string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port))
}

// Client returns a new client with the options go-redis has by default. The
// server closes it.
func (s *Server) Client() redis.UniversalClient {
	return s.ClientWith(nil)
}

// ClientWith is [Server.Client] with options changed by adjust, which may be
// nil.
func (s *Server) ClientWith(adjust func(*redis.Options)) *redis.Client {
	opts := &redis.Options{Addr: s.Addr()}
	if adjust != nil {
		adjust(opts)
	}
	client := redis.NewClient(opts)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = client.Close()
	}
	s.clients = append(s.clients, client)
	return client
}

// admin is a client for what tests ask of the server itself.
func (s *Server) admin() *redis.Client {
	s.mu.Lock()
	own := s.own
	s.mu.Unlock()
	if own != nil {
		return own
	}
	own = s.ClientWith(nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.own = own
	return own
}

// info is a section of the server's INFO, empty if it does not answer.
func (s *Server) info(section string) string {
	return s.admin().Info(context.Background(), section).Val() //nolint:forbidigo // bounded by the client's timeouts
}

// Pause stops the process (SIGSTOP): connections stay open, and what clients
// send waits until Resume. An error means that the process is dead, or that
// the platform has no such signal.
func (s *Server) Pause() error { return s.signal("pause", pauseProcess) }

// Resume continues a paused process (SIGCONT), which then executes what has
// been waiting. Errors are as for [Server.Pause].
func (s *Server) Resume() error { return s.signal("resume", resumeProcess) }

func (s *Server) signal(what string, send func(*os.Process) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := send(s.process.cmd.Process); err != nil {
		return fmt.Errorf("testutil: %s redis-server %s: %w", what, s.Addr(), err)
	}
	return nil
}

// Kill kills the process (SIGKILL) and returns when it is gone. A dead process
// is left dead.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.process.kill()
}

// Restart kills the process if it lives and runs it again on the same port,
// with the files it had: data survives if extraArgs turn persistence on. An
// error means that the server does not run.
func (s *Server) Restart() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.restart()
}

// RestartEmpty is [Server.Restart] with the server's files removed.
func (s *Server) RestartEmpty() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.process.kill()
	files, err := filepath.Glob(filepath.Join(s.dir, "*"))
	for _, f := range files {
		err = errors.Join(err, os.RemoveAll(f))
	}
	if err != nil {
		return fmt.Errorf("testutil: emptying redis-server %s: %w", s.Addr(), err)
	}
	return s.restart()
}

func (s *Server) restart() error {
	if s.closed {
		return fmt.Errorf("testutil: redis-server %s is closed", s.Addr())
	}
	s.process.kill()
	return s.start()
}

// Close closes the server's clients, kills the process and removes its files.
// Closing again does nothing.
func (s *Server) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, c := range s.clients {
		_ = c.Close()
	}
	s.clients = nil
	s.process.kill()
	_ = os.RemoveAll(s.dir)
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill() // fails if it is dead, which is what is wanted
	<-p.exited
}

var errPortTaken = errors.New("its port is taken by another process")

// start runs the process and waits until it answers.
func (s *Server) start() error {
	log := filepath.Join(s.dir, "redis.log")
	defaults := []string{
		"--bind", "127.0.0.1",
		"--port", strconv.Itoa(s.port),
		"--dir", s.dir,
		"--logfile", log,
		"--daemonize", "no",
		"--save", "",
		"--appendonly", "no",
	}
	args := slices.Concat(s.config, defaults, s.args)
	p := &process{cmd: exec.Command("redis-server", args...), exited: make(chan struct{})}
	dieWithParent(p.cmd)
	started := make(chan error)
	go p.run(started)
	if err := <-started; err != nil {
		return fmt.Errorf("testutil: start redis-server: %w", err)
	}
	s.process = p
	if err := s.awaitAnswer(p); err != nil {
		p.kill()
		text, _ := os.ReadFile(log)
		if strings.Contains(string(text), "Address already in use") {
			err = errPortTaken
		}
		return fmt.Errorf("testutil: redis-server %s did not start: %w; its log:\n%s", s.Addr(), err, text)
	}
	return nil
}

// run starts the process, sends the error of that on started, and waits for the end of the process.
func (p *process) run(started chan<- error) {
	defer close(p.exited)
	// The kernel takes the end of the starting thread for the parent's.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	started <- err
	if err == nil {
		_ = p.cmd.Wait()
	}
}

// awaitAnswer polls until p itself, and no other process on its port, answers.
func (s *Server) awaitAnswer(p *process) error {
	client := redis.NewClient(&redis.Options{
		Addr:                  s.Addr(),
		MaxRetries:            -1,
		DialerRetries:         1,
		ContextTimeoutEnabled: true,
	})
	defer func() { _ = client.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout) //nolint:forbidigo // bounded by startTimeout
	defer cancel()
	for {
		err := probe(ctx, client, p)
		if err == nil || errors.Is(err, errPortTaken) {
			return err
		}
		select {
		case <-p.exited:
			return errors.New("it exited")
		case <-ctx.Done():
			return fmt.Errorf("no answer in %v: %w", startTimeout, err)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// probe returns nil if the server of client is p and has loaded its files.
func probe(ctx context.Context, client *redis.Client, p *process) error {
	conn, err := net.Dial("tcp", client.Options().Addr) // the client would log each failed dial
	if err != nil {
		return err
	}
	_ = conn.Close()
	info, err := client.Info(ctx, "server").Result()
	if err != nil {
		return err
	}
	if !strings.Contains(info, fmt.Sprintf("\r\nprocess_id:%d\r\n", p.cmd.Process.Pid)) {
		return errPortTaken
	}
	// While it loads its files, INFO is answered and PING is not.
	return client.Ping(ctx).Err()
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("testutil: no free port on 127.0.0.1: %w", err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port, nil
}
