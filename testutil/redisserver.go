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
	portTries    = 10 // the number of ports tried, if other processes take them first
	startTimeout = 15 * time.Second
)

// Server is a redis-server process on a port of 127.0.0.1, without
// persistence. Its methods are safe for concurrent use.
type Server struct {
	dir     string
	port    int
	busPort int      // of a server in a Cluster
	config  []string // the arguments before all others: a configuration file, if there is one
	args    []string

	// mu guards the fields below, and is held while the process is started or killed.
	mu          sync.Mutex
	adminClient *redis.Client // for this package's own requests; nil until the first
	process     *process      // the latest, which may be dead
	clients     []*redis.Client
	closed      bool
}

// process is one run of redis-server. Its goroutine waits for the end of the
// process and then closes exited.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{}
}

// ServerAvailable reports whether redis-server is on PATH.
func ServerAvailable() bool {
	_, err := exec.LookPath("redis-server")
	return err == nil
}

// StartServer runs redis-server in a new directory below dir ("" for the
// system's temporary directory) and returns when it answers. extraArgs follow
// the server's own arguments and override them. The caller must Close it. On
// Linux the server also dies with the calling process, even if that crashes or
// is killed.
//
// If StartServer returns an error, no process is left running, and the error
// says what to do about it.
func StartServer(dir string, extraArgs ...string) (*Server, error) {
	return startWithConfig(dir, nil, extraArgs)
}

// startWithConfig is StartServer with arguments that come before all others: a configuration file and its mode.
func startWithConfig(dir string, config, extraArgs []string) (*Server, error) {
	if !ServerAvailable() {
		return nil, errors.New("testutil: no redis-server in PATH: install it (`make test` does), or use embedded nodes")
	}

	ownDir, err := os.MkdirTemp(dir, "redis-*")
	if err != nil {
		return nil, fmt.Errorf("testutil: directory for redis-server: %w", err)
	}

	s := &Server{dir: ownDir, config: config, args: extraArgs}
	if err := s.startOnFreePort(); err != nil {
		_ = os.RemoveAll(ownDir)
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
	requireServer(tb)
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

// requireServer skips or fails the test if there is no redis-server.
func requireServer(tb testing.TB) {
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

// Addr returns the server's host:port, which restarts do not change.
func (s *Server) Addr() string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port))
}

// Client returns a new client with the default options of go-redis. The server
// closes it.
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

// admin returns the client for this package's own requests.
func (s *Server) admin() *redis.Client {
	s.mu.Lock()
	client := s.adminClient
	s.mu.Unlock()
	if client != nil {
		return client
	}

	client = s.ClientWith(nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.adminClient = client
	return client
}

// info returns a section of the server's INFO, or "" if the server does not answer.
func (s *Server) info(section string) string {
	return s.admin().Info(context.Background(), section).Val() //nolint:forbidigo // bounded by the client's timeouts
}

// Pause stops the process (SIGSTOP): connections stay open, and requests of
// clients wait until Resume. An error means that the process is dead, or that
// the platform has no such signal.
func (s *Server) Pause() error { return s.signal("pause", pauseProcess) }

// Resume continues a paused process (SIGCONT), which then executes the requests
// that wait. Errors are as for [Server.Pause].
func (s *Server) Resume() error { return s.signal("resume", resumeProcess) }

func (s *Server) signal(action string, send func(*os.Process) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := send(s.process.cmd.Process); err != nil {
		return fmt.Errorf("testutil: %s redis-server %s: %w", action, s.Addr(), err)
	}
	return nil
}

// Kill kills the process (SIGKILL) and returns when it has ended. If the
// process is dead already, Kill does nothing.
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
	return s.restartLocked()
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

	return s.restartLocked()
}

// restartLocked is Restart with s.mu held.
func (s *Server) restartLocked() error {
	if s.closed {
		return fmt.Errorf("testutil: redis-server %s is closed", s.Addr())
	}
	s.process.kill()
	return s.start()
}

// Close closes the server's clients, kills the process and removes its files.
// Further calls do nothing.
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

// kill kills the process, if it lives, and waits for its end.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // fails if the process is dead already
	<-p.exited
}

var errPortTaken = errors.New("its port is taken by another process")

// start runs the process and waits until it answers. s.mu must be held, unless s is not shared yet.
func (s *Server) start() error {
	logFile := filepath.Join(s.dir, "redis.log")
	defaults := []string{
		"--bind", "127.0.0.1",
		"--port", strconv.Itoa(s.port),
		"--dir", s.dir,
		"--logfile", logFile,
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
		text, _ := os.ReadFile(logFile)
		if strings.Contains(string(text), "Address already in use") {
			err = errPortTaken
		}
		return fmt.Errorf("testutil: redis-server %s did not start: %w; its log:\n%s", s.Addr(), err, text)
	}

	return nil
}

// run starts the process, sends the result of the start on started, and waits for the end of the process.
func (p *process) run(started chan<- error) {
	defer close(p.exited)

	// The kernel kills the child when the thread that started it ends, not only when the whole parent does.
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

// probe returns nil if p answers and has loaded its files, and errPortTaken if another process answers.
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

	// While the server loads its files, it answers INFO but not PING.
	return client.Ping(ctx).Err()
}

// freePort returns a port that was free a moment ago.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("testutil: no free port on 127.0.0.1: %w", err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port, nil
}
