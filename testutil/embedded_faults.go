package testutil

import (
	"strings"
	"time"
)

// faults is the state of a node's switches, guarded by Node.mu.
type faults struct {
	down, hung        bool
	slow, slowReplies time.Duration
	dropReplies       int
	dropMessages      bool
	onRequest         func(args []string) Action
	onCall            func(n int, args []string) string
}

// Action is what happens to one request; see [Node.OnRequest]. The zero value
// lets it pass.
type Action struct {
	// Delay is how long the request waits before it executes, and with it
	// whatever follows on its connection. It executes even when the client has
	// closed the connection meanwhile, as a request in flight would.
	Delay time.Duration
	// DropRequest loses the request: neither it nor anything after it on its
	// connection executes or is answered. The connection stays open.
	DropRequest bool
	// DropReply executes the request and loses the reply: nothing is answered
	// on the connection from then on. The connection stays open.
	DropReply bool
	// ReplyDelay is how long the reply is under way after the execution.
	ReplyDelay time.Duration
	// Twice executes the request two times and answers the second.
	Twice bool
}

// OnRequest sets the hook that decides about every request, other than the
// handshake (HELLO, AUTH, SELECT, CLIENT, PING), when it is its turn on its
// connection and before any other fault makes it wait. args is the request as
// sent with the command's name in upper case, and must not be changed. A nil
// hook lets everything pass; a request already decided keeps its Action.
//
// The hook is called concurrently for requests of different connections. It
// may block, holding up only its connection, and may call the node's methods
// except Close.
func (n *Node) OnRequest(hook func(args []string) Action) {
	n.throw(func() { n.faults.onRequest = hook })
}

// OnCall sets the hook that decides about every command that a script calls: it
// fails with the error that the hook returns, if any. n counts the calls of a
// script from 1. args is the command with its name in upper case, and must not
// be changed. The hook must not call the node. A nil hook lets everything pass.
func (n *Node) OnCall(hook func(n int, args []string) string) {
	n.throw(func() { n.faults.onCall = hook })
}

// Down makes the node unreachable: it breaks the connections, forgets the
// requests that wait on them, and refuses new ones until Up.
func (n *Node) Down() {
	n.throw(func() {
		n.faults.down = true
		n.breakConnsLocked()
	})
}

// Hang makes the node accept connections and requests without executing or
// answering any until Up, like a stopped process. Up executes the requests
// held back, also those whose client has given up, and answers the others.
func (n *Node) Hang() {
	n.throw(func() { n.faults.hung = true })
}

// Slow makes every request wait d before it executes, until Up or Slow(0).
func (n *Node) Slow(d time.Duration) {
	n.throw(func() { n.faults.slow = d })
}

// SlowReplies makes every reply arrive d after its request has executed, until
// Up or SlowReplies(0).
func (n *Node) SlowReplies(d time.Duration) {
	n.throw(func() { n.faults.slowReplies = d })
}

// DropReplies makes the node execute each of the next k requests other than
// the handshake (HELLO, AUTH, SELECT, CLIENT, PING) and then close its
// connection instead of answering. DropReplies(0) ends it, Up does not.
func (n *Node) DropReplies(k int) {
	n.throw(func() { n.faults.dropReplies = k })
}

// Up ends Down, Hang, Slow and SlowReplies. What they held back goes on at
// once.
func (n *Node) Up() {
	n.throw(func() {
		n.faults.down = false
		n.faults.hung = false
		n.faults.slow = 0
		n.faults.slowReplies = 0
	})
}

// RestartEmpty is a crash and a restart without persistence: connections
// break, all data and scripts are lost, run_id and master_replid are new. The
// switches stay as they are, so a node that is down stays down.
func (n *Node) RestartEmpty() {
	n.throw(func() {
		n.breakConnsLocked()
		n.id.restart(time.Now())
	}, "FLUSHALL", "SCRIPT FLUSH")
}

// Restart is a crash and a restart that loses no write, as with an append-only
// file synced on every write: as [Node.RestartEmpty], but the data is kept.
func (n *Node) Restart() {
	n.throw(func() {
		n.breakConnsLocked()
		n.id.restart(time.Now())
	}, "SCRIPT FLUSH")
}

// Flush is FLUSHALL: the data is lost while run_id, master_replid, scripts and
// connections stay.
func (n *Node) Flush() {
	n.throw(func() {}, "FLUSHALL")
}

// Promote makes the node a master with a new master_replid, as a failover to
// an up-to-date replica does. All else stays: data, run_id, connections.
func (n *Node) Promote() {
	n.throw(func() {
		n.id.replica = false
		n.id.replid = newID()
	})
}

// SetReplica makes INFO report the role slave (true) or master (false). The
// node goes on accepting writes, like a writable replica.
func (n *Node) SetReplica(replica bool) {
	n.throw(func() { n.id.replica = replica })
}

// SetEvictionPolicy sets the maxmemory_policy and maxmemory that INFO reports.
// Nothing is evicted.
func (n *Node) SetEvictionPolicy(policy string, maxmemory int64) {
	n.throw(func() {
		n.id.policy = policy
		n.id.maxmemory = maxmemory
	})
}

// SetVersion sets the redis_version that INFO reports; empty hides it.
func (n *Node) SetVersion(version string) {
	n.throw(func() { n.id.version = version })
}

// Refuse has the node answer a command, in scripts too, with an error such as
// "BUSY Redis is busy running a script"; an empty one ends that.
func (n *Node) Refuse(command, err string) {
	n.throw(func() {
		if n.id.refused == nil {
			n.id.refused = map[string]string{}
		}
		n.id.refused[strings.ToUpper(command)] = err
	})
}

// StepClock moves the node's wall clock by d, as an administrator or a time
// daemon would; the clock runs on from there. Keys expire at the same reading
// of that clock as before: a step forward expires keys whose time it passes, a
// step back prolongs those that are left, and none comes back.
func (n *Node) StepClock(d time.Duration) {
	n.exec.Lock()
	defer n.exec.Unlock()
	n.tick()
	n.offset += d
	n.tick()
	if d < 0 {
		// miniredis keeps durations, which a step back leaves as they are.
		n.redis.FastForward(d)
	}
}

// tick makes miniredis expire what is due at the node's present time.
func (n *Node) tick() {
	n.redis.SetTime(time.Now().Add(n.offset))
	n.redis.DB(0)
}

// throw changes state between two requests, with mu held, then runs commands,
// then wakes whoever waits for the state to change.
func (n *Node) throw(change func(), commands ...string) {
	n.exec.Lock()
	defer n.exec.Unlock()
	n.throwLocked(change, commands...)
}

// throwLocked is throw with exec held.
func (n *Node) throwLocked(change func(), commands ...string) {
	n.mu.Lock()
	change()
	n.mu.Unlock()
	for _, c := range commands {
		_, _ = n.execLocked(strings.Fields(c))
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.conns {
		c.wakeLocked()
	}
}

func (n *Node) breakConnsLocked() {
	for c := range n.conns {
		c.breakLocked()
	}
}
