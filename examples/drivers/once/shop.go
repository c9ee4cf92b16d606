package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/examples/internal/stage"
	"github.com/lockkit/lockkit/testutil"
)

const (
	replicas = 2
	ttl      = 3 * time.Second       // of leases in examples/minimal/once
	latency  = 20 * time.Millisecond // of an answer of the nodes for locks
)

// A shop is the processes of examples/minimal/once, and all that they need.
type shop struct {
	crew     *crew
	locks    network
	database *database
	queue    *queue
	ledger   *ledger
	closers  []func() // in the order of what was started
}

// newShop starts servers and processes.
func newShop(ctx context.Context, p plan) (s *shop, err error) {
	s = &shop{ledger: newLedger()}
	defer func() {
		if err != nil {
			s.close()
		}
	}()

	dir, err := os.MkdirTemp("", "once-*")
	if err != nil {
		return nil, err
	}
	s.onClose(func() { os.RemoveAll(dir) })

	exe, err := build(ctx, dir, p.breaks)
	if err != nil {
		return nil, err
	}

	err = s.startLocks(ctx)
	if err != nil {
		return nil, err
	}

	tasks, err := testutil.StartNodes(1)
	if err != nil {
		return nil, err
	}
	s.onClose(tasks.Close)
	s.queue = newQueue(tasks.Addrs[0])
	s.onClose(s.queue.close)

	s.database, err = openDatabase(p.on, dir)
	if err != nil {
		return nil, err
	}
	s.onClose(s.database.close)

	said, err := exec.CommandContext(ctx, exe, append(s.database.flags, "-create")...).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("-create: %w: %s", err, said)
	}

	env := []string{"LOCKKIT_NODES=" + strings.Join(s.locks.urls(), ","), "REDIS_URL=" + tasks.URLs()[0]}
	s.crew = newCrew(exe, s.database.flags, env, s.ledger)
	s.onClose(s.crew.killAll)
	for range replicas {
		err = s.crew.hire()
		if err != nil {
			return nil, err
		}
	}
	return s, nil
}

// startLocks starts three nodes for locks.
func (s *shop) startLocks(ctx context.Context) error {
	nodes, err := testutil.StartNodes(3)
	if err != nil {
		return err
	}
	s.onClose(nodes.Close)

	for _, addr := range nodes.Addrs {
		proxy, err := testutil.StartProxy(addr)
		if err != nil {
			return err
		}
		s.onClose(proxy.Close)
		proxy.Delay(testutil.ToClient, latency)
		s.locks = append(s.locks, proxy)
	}
	return stage.Provision(ctx, nodes.URLs(), core.TTL(ttl))
}

func (s *shop) onClose(f func()) { s.closers = append(s.closers, f) }

func (s *shop) close() {
	for _, f := range slices.Backward(s.closers) {
		f()
	}
}

// A network is the ways of the processes to the nodes for locks.
type network []*testutil.Proxy

func (n network) urls() (urls []string) {
	for _, proxy := range n {
		urls = append(urls, "redis://"+proxy.Addr())
	}
	return urls
}

// mute loses all requests from now on. The processes go on with their payments, but cannot record that these are done.
func (n network) mute() {
	for _, proxy := range n {
		proxy.BlackHole(testutil.ToServer, true)
	}
}

// unmute ends mute. The connections that have lost requests are cut.
func (n network) unmute() {
	for _, proxy := range n {
		proxy.Cut()
		proxy.BlackHole(testutil.ToServer, false)
	}
}
