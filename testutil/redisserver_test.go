package testutil

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// brief returns a client of s that gives up soon.
func brief(s *Server) *redis.Client {
	return s.ClientWith(func(o *redis.Options) {
		o.MaxRetries = -1
		o.DialerRetries = 1
		o.ReadTimeout = 200 * time.Millisecond
	})
}

func serverField(t *testing.T, s *Server, name string) string {
	t.Helper()
	info, err := s.Client().Info(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	return infoField(t, info, name)
}

func TestServersAreIndependentMasters(t *testing.T) {
	t.Parallel()
	servers := NewServers(t, 3, "--maxmemory", "100mb")
	ids := map[string]bool{}
	for _, s := range servers {
		ids[serverField(t, s, "run_id")] = true
		if got := serverField(t, s, "maxmemory"); got != "104857600" {
			t.Errorf("maxmemory %s: extra arguments have no effect", got)
		}
		if got := serverField(t, s, "role"); got != "master" {
			t.Errorf("role %s", got)
		}
	}
	if len(ids) != 3 {
		t.Errorf("%d servers for 3", len(ids))
	}
}

func TestServerPauseHoldsRequests(t *testing.T) {
	t.Parallel()
	s := NewServers(t, 1)[0]
	c := brief(s)
	Await(t, "a connection", func() bool { return c.Ping(t.Context()).Err() == nil })
	if err := s.Pause(); err != nil {
		t.Fatal(err)
	}
	if err := c.Set(t.Context(), "k", 1, 0).Err(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("SET while paused: %v, want a timeout", err)
	}
	if err := s.Resume(); err != nil {
		t.Fatal(err)
	}
	if got := s.Client().Get(t.Context(), "k").Val(); got != "1" {
		t.Errorf("the request held back was not executed: k is %q", got)
	}
}

func TestServerKillAndRestarts(t *testing.T) { //nolint:tparallel // one server at a time
	t.Parallel()
	for _, tc := range []struct {
		name    string
		restart func(*Server) error
		prepare func(*Server)
		kept    bool
	}{
		{"restart dead", (*Server).Restart, (*Server).Kill, true},
		{"restart living", (*Server).Restart, func(*Server) {}, true},
		{"restart paused", (*Server).Restart, func(s *Server) { _ = s.Pause() }, true},
		{"restart empty dead", (*Server).RestartEmpty, (*Server).Kill, false},
		{"restart empty living", (*Server).RestartEmpty, func(*Server) {}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := NewServers(t, 1, "--appendonly", "yes", "--appendfsync", "always")[0]
			runID := serverField(t, s, "run_id")
			if err := s.Client().Set(t.Context(), "k", 1, 0).Err(); err != nil {
				t.Fatal(err)
			}
			tc.prepare(s)
			if err := tc.restart(s); err != nil {
				t.Fatal(err)
			}
			got, err := s.Client().Exists(t.Context(), "k").Result()
			if err != nil || (got == 1) != tc.kept {
				t.Errorf("EXISTS %d, %v; want kept %v", got, err, tc.kept)
			}
			if serverField(t, s, "run_id") == runID {
				t.Error("the process is the old one")
			}
		})
	}
}

func TestServerKillAndClose(t *testing.T) {
	t.Parallel()
	s := NewServers(t, 1)[0]
	s.Kill()
	s.Kill()
	if err := brief(s).Ping(t.Context()).Err(); err == nil {
		t.Error("a killed server answers")
	}
	if err := s.Pause(); err == nil {
		t.Error("a killed server was paused")
	}
	s.Close()
	s.Close()
	if _, err := os.Stat(s.dir); !os.IsNotExist(err) {
		t.Errorf("Close left its directory: %v", err)
	}
	if err := s.Restart(); err == nil {
		t.Error("a closed server restarted")
	}
}

func TestServerErrorShowsTheLog(t *testing.T) {
	t.Parallel()
	NewServers(t, 0)
	_, err := StartServer(t.TempDir(), "--no-such-option", "1")
	if err == nil || !strings.Contains(err.Error(), "it exited") {
		t.Errorf("error %v", err)
	}
}

func TestServerPortIsTaken(t *testing.T) {
	t.Parallel()
	servers := NewServers(t, 2)
	servers[0].Kill()
	intruder := &Server{dir: t.TempDir(), port: servers[1].port}
	if err := intruder.start(); !errors.Is(err, errPortTaken) {
		t.Errorf("start on a taken port: %v", err)
	}
}

func TestMissingServer(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if ServerAvailable() {
		t.Error("available without a PATH")
	}
	if _, err := StartServer(""); err == nil || !strings.Contains(err.Error(), "make test") {
		t.Errorf("StartServer: %v", err)
	}
	for env, want := range map[string]string{"": "skip", "required": "fatal"} {
		t.Setenv("LOCKKIT_REDIS", env)
		tb := &outcome{TB: t}
		done := make(chan struct{})
		go func() {
			defer close(done)
			NewServers(tb, 1)
		}()
		<-done
		if tb.was != want {
			t.Errorf("LOCKKIT_REDIS=%q: %q, want %q", env, tb.was, want)
		}
	}
}

// outcome records how a test would have ended.
type outcome struct {
	testing.TB
	was string
}

func (o *outcome) Skip(...any)  { o.was = "skip"; runtime.Goexit() }
func (o *outcome) Fatal(...any) { o.was = "fatal"; runtime.Goexit() }

const endVariable = "LOCKKIT_TESTUTIL_END"

// TestServerDiesWithItsTest runs itself as another process that ends badly. The server of that process must not survive
// it.
func TestServerDiesWithItsTest(t *testing.T) {
	switch how := os.Getenv(endVariable); how {
	case "":
	case "panic":
		var addr string
		t.Cleanup(func() {
			if _, err := net.Dial("tcp", addr); err != nil {
				fmt.Println("closed before the process ended")
			}
		})
		addr = NewServers(t, 1)[0].Addr()
		fmt.Println("addr", addr)
		panic("a test panics")
	default:
		fmt.Println("addr", NewServers(t, 1)[0].Addr())
		os.Exit(3)
	}
	t.Parallel()
	NewServers(t, 0)
	ends := []string{"panic"}
	if runtime.GOOS == "linux" {
		ends = append(ends, "exit")
	}
	for _, how := range ends {
		t.Run(how, func(t *testing.T) { serverDies(t, how) })
	}
}

func serverDies(t *testing.T, how string) {
	cmd := exec.Command(os.Args[0], "-test.run=^TestServerDiesWithItsTest$")
	cmd.Env = append(os.Environ(), endVariable+"="+how, "TMPDIR="+t.TempDir())
	out, err := cmd.Output()
	if err == nil {
		t.Fatalf("it ended well:\n%s", out)
	}
	if how == "panic" && !strings.Contains(string(out), "closed before the process ended") {
		t.Errorf("no cleanup after a panic:\n%s", out)
	}
	addr := ""
	for lines := bufio.NewScanner(strings.NewReader(string(out))); lines.Scan(); {
		if a, ok := strings.CutPrefix(lines.Text(), "addr "); ok {
			addr = a
		}
	}
	if addr == "" {
		t.Fatalf("no server was started:\n%s", out)
	}
	for start := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			break
		}
		_ = c.Close()
		if time.Since(start) > 10*time.Second {
			t.Fatalf("the server at %s lives on", addr)
		}
	}
}
