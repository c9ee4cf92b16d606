package stage

import (
	"io"
	"os"
	"os/exec"
	"os/signal"

	"github.com/redis/go-redis/v9/logging"
)

// A Child is a process that runs this program once more, as a replica or a worker of the demo.
type Child struct {
	Process *os.Process

	stdin io.Closer
	gone  chan struct{}
	err   error // how it ended; to be read when it is gone
}

// Start starts a child with more in its environment, by which main tells it from the demo. read gets what the child
// prints, in a goroutine of its own, until it returns or the child has ended.
func Start(read func(stdout io.Reader), env ...string) (*Child, error) {
	self, err := os.Executable() // also under go run
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := &Child{Process: cmd.Process, stdin: stdin, gone: make(chan struct{})}
	go func() {
		defer close(c.gone)
		read(stdout)
		io.Copy(io.Discard, stdout) // so that the child is not stopped by a pipe that is full
		c.err = cmd.Wait()
	}()
	return c, nil
}

// Dismiss asks the child to end.
func (c *Child) Dismiss() { c.stdin.Close() }

// Gone is closed when the child has ended and all that it printed was read.
func (c *Child) Gone() <-chan struct{} { return c.gone }

// Wait returns how the child ended, once it is gone.
func (c *Child) Wait() error {
	<-c.gone
	return c.err
}

// Kill ends the child without asking it (SIGKILL), and returns when it is gone.
func (c *Child) Kill() error {
	err := c.Process.Kill()
	<-c.gone
	return err
}

// Play is main of a child: it runs role, and exits with status 1 if that fails. dismissed is closed when the demo asks the
// child to end, or has died.
func Play(name string, role func(dismissed <-chan struct{}) error) {
	logging.Disable()
	signal.Ignore(os.Interrupt) // Ctrl-C reaches all processes of a terminal; the demo says when to end
	dismissed := make(chan struct{})
	go func() {
		defer close(dismissed)
		io.Copy(io.Discard, os.Stdin)
	}()
	exit(name, role(dismissed))
}
