package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// replicas are processes of this program that serve.
type replicas struct {
	urls  []string
	procs []process
}

type process struct {
	cmd   *exec.Cmd
	stdin io.Closer
}

func startReplicas(n int, nodes []string, store string) (*replicas, error) {
	rs := &replicas{}
	for i := range n {
		if err := rs.start(nodes, store); err != nil {
			rs.stop()
			return nil, fmt.Errorf("replica %d: %w", i, err)
		}
	}
	return rs, nil
}

func (rs *replicas) start(nodes []string, store string) error {
	self, err := os.Executable() // also under go run
	if err != nil {
		return err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), nodesEnv+"="+strings.Join(nodes, ","), storeEnv+"="+store)
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
	rs.procs = append(rs.procs, process{cmd, stdin})
	addr, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		return fmt.Errorf("it ended before it served: %w", err)
	}
	rs.urls = append(rs.urls, "http://"+strings.TrimSpace(addr))
	return nil
}

// stop asks all to shut down and waits for them.
func (rs *replicas) stop() {
	for _, p := range rs.procs {
		p.stdin.Close()
	}
	for _, p := range rs.procs {
		if err := p.cmd.Wait(); err != nil {
			fmt.Fprintln(os.Stderr, "replica:", err)
		}
	}
}
