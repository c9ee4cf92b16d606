package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/lockkit/lockkit/testutil"
)

const nodeCount = 5

// States of nodes and replicas.
const (
	up     = "up"
	down   = "down"
	paused = "paused"
)

// nodes are the Redis nodes for locks, and what was done to them.
type nodes struct {
	all *testutil.Nodes

	mu     sync.Mutex
	is     [nodeCount]string
	forgot [nodeCount]time.Time // when it last lost its memory
}

// startNodes starts nodes that keep their data over a restart, if they are not emptied. It is the process that is killed,
// and never the machine: what was answered must have been written, which everysec puts off on a busy disk, and need not
// be on the disk.
func startNodes(n int) (*testutil.Nodes, error) {
	all, err := testutil.StartNodes(n, "--appendonly", "yes", "--appendfsync", "no")
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("redis-server needs a directory for its files below %s, and it cannot be made there; set TMPDIR to a directory that can be written (%w)", os.TempDir(), err)
	}
	return all, err
}

func newNodes() (*nodes, error) {
	all, err := startNodes(nodeCount)
	if err != nil {
		return nil, err
	}
	return &nodes{all: all, is: [nodeCount]string{up, up, up, up, up}}, nil
}

func (n *nodes) state(i int) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.is[i]
}

// forgotten reports whether a node has lost its memory since then.
func (n *nodes) forgotten(since time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.ContainsFunc(n.forgot[:], func(at time.Time) bool { return at.After(since) })
}

// becomes is a change of a node, from one of some states to another. It is noted before and after it is made, so that
// memory that is lost meanwhile is known to be.
func (n *nodes) becomes(i int, to string, change func(int) error, loses bool, from ...string) error {
	if is := n.state(i); !slices.Contains(from, is) {
		return refusal(fmt.Sprintf("node %d is %s", i, is))
	}
	note := func(state string) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.is[i] = state
		if loses {
			n.forgot[i] = time.Now()
		}
	}
	note(n.state(i))
	if err := change(i); err != nil {
		return unsupported(err)
	}
	note(to)
	return nil
}

// do does to a node what a command says, and returns the event that tells of it.
func (n *nodes) do(what string, i int) (Event, error) {
	all := n.all
	e := Event{Node: new(i)}
	var err error
	switch what {
	case "node_kill":
		e.Kind = isDown
		err = n.becomes(i, down, func(i int) error { all.Kill(i); return nil }, false, up, paused)
	case "node_pause":
		e.Kind = isHung
		err = n.becomes(i, paused, all.Pause, false, up)
	case "node_resume":
		e.Kind, e.Text = isUp, "resumed"
		err = n.becomes(i, up, all.Resume, false, paused)
	case "node_restart":
		e.Kind, e.Text = isUp, "restarted with its data"
		err = n.becomes(i, up, all.Restart, false, up, down, paused)
	case "node_restart_empty":
		e.Kind = isEmptied
		err = n.becomes(i, up, all.RestartEmpty, true, up, down, paused)
	case "node_flush":
		e.Kind = isFlushed
		err = n.becomes(i, up, all.Flush, true, up)
	default:
		err = errMalformed
	}
	return e, err
}

// unsupported says it in words, where a system cannot pause processes.
func unsupported(err error) error {
	if errors.Is(err, errors.ErrUnsupported) {
		return refusal("this system cannot pause processes")
	}
	return err
}
