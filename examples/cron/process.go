package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// A process runs a replica, seen from the demo.
type process struct {
	cmd    *exec.Cmd
	stdin  io.Closer
	gone   chan struct{}
	err    error // how it went, once it is gone
	killed bool
}

type replicas map[string]*process

// start runs this program again, as a replica whose reports go to rec.
func (rs replicas) start(name string, urls []string, m mode, rec *record) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), envReplica+"="+name, envNodes+"="+strings.Join(urls, ","), envSkew+"=0s")
	if name == "c" {
		cmd.Env = append(cmd.Env, envSkew+"="+skew.String())
	}
	if m.unprotected {
		cmd.Env = append(cmd.Env, envUnprotected+"=1")
	}
	if m.elector {
		cmd.Env = append(cmd.Env, envElector+"=1")
	}
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	p := &process{cmd: cmd, stdin: stdin, gone: make(chan struct{})}
	rs[name] = p
	go func() {
		defer close(p.gone)
		lines := json.NewDecoder(stdout)
		var e event
		for lines.Decode(&e) == nil { // until the end, which may cut a line off
			rec.add(e)
			e = event{}
		}
		p.err = cmd.Wait()
	}()
	return nil
}

// kill does not ask (SIGKILL), and returns when the process is gone.
func (rs replicas) kill(name string) error {
	p := rs[name]
	p.killed = true
	if err := p.cmd.Process.Kill(); err != nil {
		return fmt.Errorf("killing replica %s: %w", name, err)
	}
	<-p.gone
	return nil
}

// stop has the process shut down, and returns when it is gone.
func (p *process) stop() error {
	p.stdin.Close()
	select {
	case <-p.gone:
	case <-time.After(10 * time.Second):
		p.cmd.Process.Kill()
		<-p.gone
	}
	if p.killed {
		return nil
	}
	return p.err
}

// stop stops those that are left.
func (rs replicas) stop() error {
	for _, p := range rs {
		p.stdin.Close() // all at once
	}
	var errs []error
	for name, p := range rs {
		if err := p.stop(); err != nil {
			errs = append(errs, fmt.Errorf("replica %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}
