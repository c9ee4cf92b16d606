package freeport

import (
	"context"
	"fmt"
	"os/exec"
	"time"
)

// A Process is a server that Start has started.
type Process struct {
	Addr string
	Pid  int
	cmd  *exec.Cmd

	exited chan struct{} // closed when the process has ended
	err    error         // set before exited is closed
}

// Start starts a server on a free port, and returns when answers reports true. If the process ends first, Start
// tries another port, as Try does. The end of ctx ends the wait, and the process. The caller must call Stop.
func Start(
	ctx context.Context, command func(addr string) *exec.Cmd, answers func(addr string) bool,
) (p *Process, err error) {
	err = Try(func(addr string) error {
		p = &Process{Addr: addr, cmd: command(addr), exited: make(chan struct{})}
		return p.start(ctx, answers)
	})

	if err != nil {
		return nil, err
	}
	return p, nil
}

// start starts the process, and waits until it answers.
func (p *Process) start(ctx context.Context, answers func(addr string) bool) error {
	if err := p.cmd.Start(); err != nil {
		return err
	}
	p.Pid = p.cmd.Process.Pid

	go func() {
		p.err = p.cmd.Wait()
		close(p.exited)
	}()

	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()

	for !answers(p.Addr) {
		select {
		case <-p.exited:
			return fmt.Errorf("%s ended before it answered: %w", p.cmd.Path, p.err)
		case <-ctx.Done():
			p.Stop()
			return context.Cause(ctx)
		case <-poll.C:
		}
	}
	return nil
}

// Stop kills the process and waits for its end.
func (p *Process) Stop() {
	_ = p.cmd.Process.Kill() // fails if the process has ended
	<-p.exited
}
