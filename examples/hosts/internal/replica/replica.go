// Package replica runs the code of a host in processes of its own, on lock nodes that the test starts.
package replica

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/examples/internal/stage"
	"github.com/lockkit/lockkit/testutil"
)

// patience is how long a process may take for anything. The TTL is part of it.
const patience = 2 * time.Minute

// The TTL of leases in a test.
const (
	Usual = 10 * time.Second // the default, where a lease ends without a release
	Long  = time.Minute      // where none may be lost, on a slow machine either
)

// Nodes are the nodes for locks of a test.
type Nodes struct {
	t     *testing.T
	ttl   time.Duration
	addrs []string
}

// StartNodes starts three servers of Redis, for leases with the TTL. They are stopped when the test ends.
func StartNodes(t *testing.T, ttl time.Duration) *Nodes {
	t.Helper()
	nodes := &Nodes{t: t, ttl: ttl}
	var urls []string
	for _, server := range testutil.NewServers(t, 3) {
		nodes.addrs = append(nodes.addrs, server.Addr())
		urls = append(urls, "redis://"+server.Addr())
	}
	err := stage.Provision(t.Context(), urls, core.TTL(ttl))
	if err != nil {
		t.Fatal(err)
	}
	return nodes
}

// A Replica is a process.
type Replica struct {
	t       *testing.T
	name    string
	process *stage.Child
	proxies []*testutil.Proxy // between the process and the nodes for locks
	lines   stage.Events[string]
}

// Start starts this program once more, with more in its environment; see Main. The process is killed when the test ends.
func (n *Nodes) Start(name string, env ...string) *Replica {
	n.t.Helper()
	r := &Replica{t: n.t, name: name}
	var urls []string
	for _, addr := range n.addrs {
		proxy := testutil.NewProxy(n.t, addr)
		r.proxies = append(r.proxies, proxy)
		urls = append(urls, "redis://"+proxy.Addr())
	}

	self, err := os.Executable()
	if err != nil {
		n.t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), nameOf+"="+name, nodesOf+"="+strings.Join(urls, ","), ttlOf+"="+n.ttl.String())
	cmd.Env = append(cmd.Env, env...)
	r.process, err = stage.StartCommand(r.read, cmd)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(r.Kill)
	return r
}

// read keeps the lines that the process says and logs.
func (r *Replica) read(said io.Reader) {
	lines := bufio.NewReader(said)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return // the last line of a killed process may be cut off
		}
		r.lines.Add(strings.TrimSuffix(line, "\n"))
	}
}

// Await returns the first line with the text that the process has said or logged since its start. It fails the test if
// the process ends before, or takes too long.
func (r *Replica) Await(text string) (line string) {
	r.t.Helper()
	ctx, cancel := context.WithTimeoutCause(r.t.Context(), patience, errors.New("it takes too long"))
	defer cancel()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	go func() {
		select {
		case <-r.process.Gone():
			end(errors.New("it has ended"))
		case <-ctx.Done():
		}
	}()

	hasText := func(line string) bool { return strings.Contains(line, text) }
	line, err := r.lines.Wait(ctx, hasText)
	if err == nil {
		return line
	}
	all := r.lines.All()
	i := slices.IndexFunc(all, hasText) // it may have been the last line
	if i < 0 {
		r.t.Fatalf("%s has not said %q: %v. It has said:\n%s", r.name, text, err, strings.Join(all, "\n"))
	}
	return all[i]
}

// Tell tells the process a line.
func (r *Replica) Tell(line string) {
	r.t.Helper()
	err := r.process.Tell(line)
	if err != nil {
		r.t.Fatal(err)
	}
}

// CutOff loses all that is sent between the process and the nodes for locks, from now on. The lease of the process is
// lost within the TTL.
func (r *Replica) CutOff() {
	for _, proxy := range r.proxies {
		proxy.BlackHole(testutil.ToServer, true)
		proxy.BlackHole(testutil.ToClient, true)
	}
}

// Reconnect ends CutOff.
func (r *Replica) Reconnect() {
	for _, proxy := range r.proxies {
		proxy.Cut() // the connections that have lost bytes
		proxy.BlackHole(testutil.ToServer, false)
		proxy.BlackHole(testutil.ToClient, false)
	}
}

// AwaitLoss waits until the process has logged the loss of a lease.
func (r *Replica) AwaitLoss() {
	r.t.Helper()
	r.Await("lockkit: lease lost")
}

// Kill kills the process (SIGKILL), and returns when it is gone.
func (r *Replica) Kill() { _ = r.process.Kill() }
