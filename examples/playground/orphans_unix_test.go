//go:build unix

package main

import (
	"bufio"
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/lockkit/lockkit/testutil"
)

// However the playground ends, it leaves no processes: neither the replicas, one of which is paused, nor a
// redis-server.
func TestNothingIsLeft(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("processes are looked for in /proc")
	}
	for name, end := range map[string]func(*testing.T, *exec.Cmd){
		"Ctrl-C":       func(t *testing.T, c *exec.Cmd) { interrupt(t, c) },
		"Ctrl-C twice": func(t *testing.T, c *exec.Cmd) { interrupt(t, c); interrupt(t, c) },
		"SIGKILL":      func(t *testing.T, c *exec.Cmd) { c.Process.Kill() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mark := fmt.Sprintf("%s=%s-%d", mainEnv, strings.ReplaceAll(name, " ", "-"), os.Getpid())
			// If redis-servers are killed, they leave their files here.
			dir := t.TempDir()
			p := startMarked(t, mark, "TMPDIR="+dir)
			// The playground plays by itself, and may just have killed a replica. It starts that replica again.
			testutil.Await(t, "4 processes run, and redis-servers, which overwrite their environment", func() bool { return len(marked(mark)) == 4 })
			testutil.Await(t, "b is paused", func() bool { return pauses(t, p, "b") })

			end(t, p.Cmd)
			err := testutil.Receive(t, p.ended)
			if name == "Ctrl-C" && strings.Contains(p.stderr.String(), "did not shut down") {
				t.Errorf("a paused replica is not resumed: %v, %s", err, &p.stderr)
			}
			testutil.Await(t, "all processes have ended", func() bool { return len(marked(mark)) == 0 && !inUse(dir) })
			if left, err := os.ReadDir(dir); err != nil || name == "Ctrl-C" && len(left) > 0 {
				t.Errorf("left in TMPDIR: %v, %v", left, err)
			}
		})
	}
}

// inUse reports whether a process works in a directory below dir.
func inUse(dir string) bool {
	all, _ := filepath.Glob("/proc/[0-9]*/cwd")
	return slices.ContainsFunc(all, func(link string) bool {
		at, err := os.Readlink(link)
		return err == nil && strings.HasPrefix(at, dir)
	})
}

// pauses pauses a replica, and reports whether that was possible.
func pauses(t *testing.T, p *program, replica string) bool {
	t.Helper()
	res, err := http.Post(p.url+"/do", "application/json", strings.NewReader(fmt.Sprintf(`{"do":"pause","replica":%q}`, replica)))
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	return res.StatusCode == http.StatusNoContent
}

// A program is a playground in a process of its own.
type program struct {
	*exec.Cmd
	url    string
	stderr bytes.Buffer // to be read after its end
	ended  chan error
}

// startMarked starts a playground, and returns when it serves.
func startMarked(t *testing.T, env ...string) *program {
	t.Helper()
	p := &program{Cmd: exec.Command(os.Args[0], "-for", "10m", "-addr", "127.0.0.1:0"), ended: make(chan error, 1)}
	p.Env = append(os.Environ(), env...)
	p.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // as a shell does
	p.Stderr = &p.stderr
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for found := false; !found && lines.Scan(); {
		p.url, found = strings.CutPrefix(lines.Text(), "open ")
	}
	go func() {
		for lines.Scan() { // reads to the end
		}
		p.ended <- p.Wait()
	}()
	return p
}

// interrupt sends SIGINT to all processes of the group, as Ctrl-C does.
func interrupt(t *testing.T, c *exec.Cmd) {
	t.Helper()
	if err := syscall.Kill(-c.Process.Pid, syscall.SIGINT); err != nil {
		t.Error(err)
	}
}

// marked returns the live processes that have mark in their environment. Children inherit it.
func marked(mark string) (pids []string) {
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, f := range files {
		env, err := os.ReadFile(f) // empty or unreadable if the process is dead
		if err == nil && bytes.Contains(append([]byte{0}, env...), []byte("\x00"+mark+"\x00")) {
			pids = append(pids, f)
		}
	}
	return pids
}
