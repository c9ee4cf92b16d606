package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/rpc"
	"os"
	"os/exec"
	"time"
)

// childVariable, in the environment, makes this program serve the one that started it.
const childVariable = "LOCKKIT_BENCH_CHILD"

// isChild reports whether this process serves the one that started it.
func isChild() bool { return os.Getenv(childVariable) != "" }

// A process is another process of this program, with lockers of its own. It serves calls to a [Waiters] on its
// standard input and output.
type process struct {
	command *exec.Cmd
	in      io.Closer // of its input
	client  *rpc.Client
}

// pipes are the two ends of a connection.
type pipes struct {
	io.ReadCloser
	io.WriteCloser
}

func (p pipes) Close() error { return errors.Join(p.ReadCloser.Close(), p.WriteCloser.Close()) }

func startProcess() (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	command := exec.Command(self)
	command.Env = append(os.Environ(), childVariable+"=1")
	command.Stderr = os.Stderr
	in, err := command.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("another process of this program: %w", err)
	}
	return &process{command, in, rpc.NewClient(pipes{out, in})}, nil
}

// serve answers the process that started this one, until that one closes the connection or ends.
func serve() {
	ctx, cancel := context.WithCancel(context.Background())
	w := &Waiters{ctx: ctx}
	server := rpc.NewServer()
	if err := server.Register(w); err != nil {
		panic(err) // its methods are not as rpc wants them
	}
	server.ServeConn(pipes{input{os.Stdin, cancel}, os.Stdout})
	w.close()
}

// An input ends what waits when there is nothing more to read: the server waits for calls that are under way.
type input struct {
	io.ReadCloser
	end func()
}

func (i input) Read(p []byte) (int, error) {
	n, err := i.ReadCloser.Read(p)
	if err != nil {
		i.end()
	}
	return n, err
}

// call calls a method of the process's Waiters.
func (p *process) call(ctx context.Context, method string, args, reply any) error {
	call := p.client.Go("Waiters."+method, args, reply, make(chan *rpc.Call, 1))
	select {
	case <-call.Done:
		return call.Error
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// close ends the process and waits for that. What it still has to say is read until then.
func (p *process) close() error {
	defer p.client.Close()
	_ = p.in.Close() // fails only where the process has ended, of which Wait tells
	kill := time.AfterFunc(10*time.Second, func() { _ = p.command.Process.Kill() })
	defer kill.Stop()
	return p.command.Wait()
}

// inProcesses measures with n other processes, each of which has opened so many of the lockers of a peer.
func inProcesses(ctx context.Context, n, lockers int, p peer, on *nodes, measure func([]*process) error) (err error) {
	var all []*process
	defer func() {
		for _, one := range all {
			err = errors.Join(err, one.close())
		}
	}()
	for range n {
		one, err := startProcess()
		if err != nil {
			return err
		}
		all = append(all, one)
	}
	err = together(all, func(i int, one *process) error {
		return one.call(ctx, "Open", OpenArgs{Peer: p.name, Addrs: on.addrs(), Lockers: share(lockers, n, i)}, new(int))
	})
	if err != nil {
		return err
	}
	return measure(all)
}

// share is how many of so many things the i-th of n gets.
func share(things, n, i int) int { return (things + n - 1 - i) / n }

// together does something with all processes at once.
func together(all []*process, do func(int, *process) error) error {
	return errors.Join(inParallel(len(all), func(i int) error { return do(i, all[i]) })...)
}
