// Package playground tests the page of examples/playground in a browser: make playground-test.
package playground

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// built builds the program once, and returns its path.
var built = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "lockkit-playground")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "playground")
	build := exec.Command("go", "build", "-ldflags=-w", "-o", path, "./examples/playground")
	build.Dir = filepath.Join("..", "..", "..")
	build.Stderr = os.Stderr
	return path, build.Run()
})

// A program is a playground in a process of its own.
type program struct {
	t    *testing.T
	url  string
	cmd  *exec.Cmd
	said chan string // all of its output, when it has ended
	gone bool
}

var opened = regexp.MustCompile(`open (http://\S+)`)

// started starts a playground that waits for commands of its page, because its standard output is a terminal. It serves
// on an address, and has env added to its environment. The test ends it.
func started(t *testing.T, addr string, env ...string) *program {
	t.Helper()
	screen, terminal := openTerminal(t)
	return startedOn(t, screen, terminal, addr, env...)
}

// unattended starts a playground that plays by itself, because its standard output is no terminal.
func unattended(t *testing.T, addr string) *program {
	t.Helper()
	screen, output, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	return startedOn(t, screen, output, addr)
}

// startedOn starts a playground whose output goes to a terminal or a pipe, and can be read from screen.
func startedOn(t *testing.T, screen, terminal *os.File, addr string, env ...string) *program {
	t.Helper()
	defer terminal.Close()
	path, err := built()
	if err != nil {
		t.Fatal(err)
	}

	p := &program{t: t, said: make(chan string, 1), cmd: exec.Command(path, "-addr", addr)}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = terminal, terminal
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.stop() })

	url := make(chan string, 1)
	go func() {
		defer screen.Close()
		var all strings.Builder
		for lines := bufio.NewScanner(screen); lines.Scan(); { // until no process has the terminal open
			all.WriteString(lines.Text() + "\n")
			if m := opened.FindStringSubmatch(lines.Text()); m != nil {
				url <- m[1]
			}
		}
		p.said <- all.String()
		close(url)
	}()

	select {
	case p.url = <-url:
	case <-time.After(patience):
	}
	if p.url == "" {
		t.Fatalf("the playground did not start:\n%s", p.stop())
	}
	return p
}

// stop ends the playground as Ctrl-C does, and returns its output.
func (p *program) stop() string {
	if p.gone {
		return ""
	}
	p.gone = true
	p.cmd.Process.Signal(os.Interrupt)
	late := time.AfterFunc(patience, func() {
		p.t.Errorf("the playground did not end within %v of Ctrl-C", patience)
		p.cmd.Process.Kill()
	})
	defer late.Stop()
	err := p.cmd.Wait()
	said := <-p.said
	if err != nil {
		p.t.Logf("the playground ended with %v:\n%s", err, said)
	}
	return said
}
