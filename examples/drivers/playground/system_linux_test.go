package playground

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// openTerminal returns a terminal for a program, and a screen that shows the terminal's contents.
func openTerminal(t *testing.T) (screen, terminal *os.File) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	var number int
	if err := unix.IoctlSetPointerInt(int(screen.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	if number, err = unix.IoctlGetInt(int(screen.Fd()), unix.TIOCGPTN); err != nil {
		t.Fatal(err)
	}
	terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return screen, terminal
}

// freeze stops the playground's process until thaw. Meanwhile the process answers nothing, and breaks no connection.
func (p *program) freeze() { p.cmd.Process.Signal(unix.SIGSTOP) }

func (p *program) thaw() { p.cmd.Process.Signal(unix.SIGCONT) }

// memory returns how many MB the playground's process uses, and how many the processes use that it has started.
func (p *program) memory(t *testing.T) (server, others int) {
	t.Helper()
	for i, pid := range append([]string{fmt.Sprint(p.cmd.Process.Pid)}, p.children(t)...) {
		text, err := os.ReadFile("/proc/" + pid + "/status")
		if err != nil {
			continue // the process has ended
		}
		var kB int
		if _, after, ok := strings.Cut(string(text), "VmRSS:"); ok {
			fmt.Sscan(after, &kB)
		}
		if i == 0 {
			server = kB >> 10
		} else {
			others += kB >> 10
		}
	}
	return server, others
}

func (p *program) children(t *testing.T) (pids []string) {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", p.cmd.Process.Pid))
	if err != nil || len(threads) == 0 {
		t.Fatalf("no processes: %v", err)
	}
	for _, thread := range threads {
		text, _ := os.ReadFile(thread) // empty if the thread has ended
		pids = append(pids, strings.Fields(string(text))...)
	}
	return pids
}
