package playground

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// openTerminal returns a terminal for a program, and what is to be seen on it.
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

// freeze stops the playground's process until thaw: it answers nothing, and breaks no connection.
func (p *program) freeze() { p.cmd.Process.Signal(unix.SIGSTOP) }

func (p *program) thaw() { p.cmd.Process.Signal(unix.SIGCONT) }
