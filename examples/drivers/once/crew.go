package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"

	"github.com/lockkit/lockkit/examples/internal/stage"
)

// A crew is the processes of the shop that run.
type crew struct {
	exe    string
	flags  []string
	env    []string
	ledger *ledger
	failed chan error // a process has ended by itself

	mu      sync.Mutex
	workers []*worker
}

// A worker is a process.
type worker struct {
	*stage.Child
	url      string
	said     []string // the last lines that it has printed; to be read when it is gone
	mayEnd   bool     // it was killed or interrupted
	portGone bool     // another process had its port first
}

func newCrew(exe string, flags, env []string, l *ledger) *crew {
	return &crew{exe: exe, flags: flags, env: env, ledger: l, failed: make(chan error, 1)}
}

// hire starts a process.
func (c *crew) hire() error {
	addr, err := freeAddr()
	if err != nil {
		return err
	}

	w := &worker{url: "http://" + addr}
	cmd := exec.Command(c.exe, c.flags...)
	cmd.Env = append(append(os.Environ(), c.env...), "ADDR="+addr)
	w.Child, err = stage.StartCommand(func(said io.Reader) { c.read(w, said) }, cmd)
	if err != nil {
		return err
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	c.workers = append(c.workers, w)
	go c.watch(w)
	return nil
}

func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// read enters the lines of a process into the ledger. The last line of a killed process may be cut off.
func (c *crew) read(w *worker, said io.Reader) {
	lines := bufio.NewReader(said)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}

		c.ledger.log(line)
		w.said = append(w.said[max(0, len(w.said)-20):], line)
		w.portGone = w.portGone || strings.Contains(line, "address already in use")
	}
}

// watch waits for the end of a process. It replaces a process that has found its port taken, and reports any other end
// that was not asked for.
func (c *crew) watch(w *worker) {
	err := w.Wait()
	c.mu.Lock()
	expected := w.mayEnd
	c.workers = slices.DeleteFunc(c.workers, func(other *worker) bool { return other == w })
	c.mu.Unlock()

	switch {
	case expected:
		return
	case w.portGone:
		err = c.hire()
	default:
		err = fmt.Errorf("a process has ended by itself: %w\n%s", errors.Join(err), strings.Join(w.said, ""))
	}

	if err != nil {
		select {
		case c.failed <- err:
		default: // another failure comes first
		}
	}
}

// present returns the processes that run.
func (c *crew) present() []*worker {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.workers)
}

// dismiss returns the processes that run, each of which may end from now on.
func (c *crew) dismiss() []*worker {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.workers {
		w.mayEnd = true
	}
	return slices.Clone(c.workers)
}

// pick returns the URL of one of the processes, or "" if none runs.
func (c *crew) pick() string {
	all := c.present()
	if len(all) == 0 {
		return ""
	}
	return all[rand.IntN(len(all))].url
}

// kill kills a process (SIGKILL).
func (c *crew) kill(w *worker) {
	c.mu.Lock()
	w.mayEnd = true
	c.mu.Unlock()
	_ = w.Kill() // it may be gone
}

// killAll kills all processes.
func (c *crew) killAll() {
	for _, w := range c.dismiss() {
		_ = w.Kill()
	}
}

// shutDown interrupts all processes, and waits for their ends, which must be clean.
func (c *crew) shutDown() error {
	var errs []error
	all := c.dismiss()
	for _, w := range all {
		errs = append(errs, w.Process.Signal(os.Interrupt))
	}
	for _, w := range all {
		err := w.Wait()
		if err != nil {
			errs = append(errs, fmt.Errorf("a process did not shut down cleanly: %w\n%s", err, strings.Join(w.said, "")))
		}
	}
	return errors.Join(errs...)
}
