package stage

import (
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/redis/go-redis/v9/logging"
)

// A Child is a process that runs this program once more, as a replica or a worker of the demo.
type Child struct {
	Process *os.Process

	stdin io.WriteCloser
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
	return StartCommand(read, cmd)
}

// StartCommand starts another program as a child. If cmd has no Stderr, read also gets what the child prints there.
func StartCommand(read func(stdout io.Reader), cmd *exec.Cmd) (*Child, error) {
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if cmd.Stderr == nil {
		cmd.Stderr = cmd.Stdout
	}
	dieWithParent(cmd)
	c := &Child{stdin: stdin, gone: make(chan struct{})}
	started := make(chan error)
	go func() {
		defer close(c.gone)
		// The kernel takes the end of the starting thread for the parent's.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		read(stdout)
		io.Copy(io.Discard, stdout) // so that the child is not stopped by a pipe that is full
		c.err = cmd.Wait()
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	c.Process = cmd.Process
	return c, nil
}

// Tell writes what to do to the child's standard input, as a line of JSON.
func (c *Child) Tell(order any) error { return json.NewEncoder(c.stdin).Encode(order) }

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

// Pause stops the child where it is (SIGSTOP), until Resume. It is an error that matches errors.ErrUnsupported where a
// system cannot.
func (c *Child) Pause() error { return pauseProcess(c.Process) }

// Resume lets a paused child go on.
func (c *Child) Resume() error { return resumeProcess(c.Process) }

// Play is main of a child: it runs role, and exits with status 1 if that fails. dismissed is closed when the demo asks the
// child to end, or has died.
func Play(name string, role func(dismissed <-chan struct{}) error) {
	PlayTold(name, func(orders io.Reader) error {
		dismissed := make(chan struct{})
		go func() {
			defer close(dismissed)
			io.Copy(io.Discard, orders)
		}()
		return role(dismissed)
	})
}

// PlayTold is Play for a role that is told more than when to end: orders has what Tell was given, and ends when the child is
// to end.
func PlayTold(name string, role func(orders io.Reader) error) {
	logging.Disable()
	signal.Ignore(os.Interrupt, syscall.SIGTERM) // these reach all processes of a terminal; the demo says when to end
	exit(name, role(os.Stdin))
}
