package main

import (
	"context"
	"errors"
	"time"
)

// The TTL that all peers use, but where leases are held.
const ttl = 10 * time.Second

// errHeld: another holder has the key.
var errHeld = errors.New("held by somebody else")

// An unlock gives a key back. It fails if the lock was lost before, as far as the peer tells.
type unlock func(context.Context) error

// A locker is one way to lock, opened on some nodes.
type locker interface {
	// lock waits until it has the key.
	lock(ctx context.Context, key string) (unlock, error)
	// tryLock asks once, and fails with errHeld if the key is held.
	tryLock(ctx context.Context, key string) (unlock, error)
	close()
}

// A holder is a locker that renews what is held. All peers that renew open holders.
type holder interface {
	locker
	hold(ctx context.Context, key string) (lease, error)
	// abandon closes the holder at once, with the leases that it still has. It fails unless that went as the
	// peer says.
	abandon() error
}

// A lease is a lock that is renewed.
type lease interface {
	// lost is why the lease ended before its release, nil while it is held.
	lost() error
	// release gives the key back. It fails if the lease was lost before, and if the peer tells that nothing
	// confirmed it.
	release(context.Context) error
}

// A peer is what is compared. Unless it is for one node only, it locks on a majority of any number.
type peer struct {
	name    string
	oneNode bool
	renews  bool // keeps what is held
	// The command that it sends beside scripts, as INFO commandstats spells it.
	command string
	open    func(ctx context.Context, addrs []string, ttl time.Duration) (locker, error)
	// visit, of a peer that renews, opens one of so many nodes, which others use or have used.
	visit func(addr string, nodes int, ttl time.Duration) (locker, error)
}

// baseline is the peer that all ratios refer to.
const baseline = "redsync"

var peers = []peer{
	{name: baseline, command: "set", open: openRedsync},
	{name: "bsm/redislock", oneNode: true, open: openRedislock},
	{name: "rueidislock", oneNode: true, renews: true, open: openRueidislock, visit: visitRueidislock},
	{name: "raw go-redis", oneNode: true, command: "set", open: openRawGoRedis},
	{name: "raw go-redis, auto-pipelined", oneNode: true, command: "set", open: openRawAutoPipelined},
	{name: "raw rueidis, auto-pipelined", oneNode: true, command: "set", open: openRawRueidis},
	{name: "lockkit, Open", renews: true, open: openLockkit, visit: visitLockkit},
	{name: "lockkit, New", renews: true, open: openLockkitWithClients, visit: visitLockkit},
}

// redsyncFailFast is for where a node does not answer: redsync as such waits for all nodes.
var redsyncFailFast = peer{name: "redsync, fail fast", command: "set", open: openRedsyncFailFast}

// peersFor returns those that lock on n nodes.
func peersFor(n int) []peer { return fitting(n, peers) }

// fitting returns those of some peers that lock on n nodes.
func fitting(n int, of []peer) []peer {
	var fit []peer
	for _, p := range of {
		if n == 1 || !p.oneNode {
			fit = append(fit, p)
		}
	}
	return fit
}
