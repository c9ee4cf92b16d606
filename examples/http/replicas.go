package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/lockkit/lockkit/examples/internal/stage"
)

// replicas are processes of this program that serve.
type replicas struct {
	urls  []string
	procs []*stage.Child
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
	serves := make(chan string, 1) // where
	read := func(stdout io.Reader) {
		defer close(serves)
		if addr, err := bufio.NewReader(stdout).ReadString('\n'); err == nil {
			serves <- "http://" + strings.TrimSpace(addr)
		}
	}
	p, err := stage.Start(read, nodesEnv+"="+strings.Join(nodes, ","), storeEnv+"="+store)
	if err != nil {
		return err
	}
	rs.procs = append(rs.procs, p)
	url, ok := <-serves
	if !ok {
		return fmt.Errorf("it ended before it served: %w", p.Wait())
	}
	rs.urls = append(rs.urls, url)
	return nil
}

// stop asks all to shut down and waits for them.
func (rs *replicas) stop() {
	for _, p := range rs.procs {
		p.Dismiss()
	}
	for _, p := range rs.procs {
		if err := p.Wait(); err != nil {
			fmt.Fprintln(os.Stderr, "replica:", err)
		}
	}
}
