package testutil

import (
	"strings"
	"time"
)

// faults is the state of a node's switches, guarded by Node.mu.
type faults struct {
	down, hung        bool
	slow, slowReplies time.Duration
	dropReplies       int // the number of replies still to drop
	dropMessages      bool
	onRequest         func(args []string) Action
	onCall            func(n int, args []string) string
}

// Action says how a fault affects one request; see [Node.OnRequest]. The zero
// value lets the request pass.
type Action struct {
	// Delay is how long the request waits before it executes. Later requests on
	// its connection wait, too. The request executes even if the client closes
	// the connection before, like a request in flight.
	Delay time.Duration
	// DropRequest loses the request: neither it nor anything after it on its
	// connection executes or is answered. The connection stays open.
	DropRequest bool
	// DropReply executes the request and loses the reply: nothing is answered
	// on the connection from then on. The connection stays open.
	DropReply bool
	// ReplyDelay is the time between the execution and the arrival of the reply.
	ReplyDelay time.Duration
	// Twice executes the request two times and sends the second reply.
	Twice bool
}

// OnRequest sets the hook that decides about every request, except the
// handshake (HELLO, AUTH, SELECT, CLIENT, PING). It is called when the request
// is the next on its connection, before any other fault delays the request.
// args is the request as sent, with the command's name in upper case; the hook
// must not change it. A nil hook lets everything pass. If a request was decided
// before the hook changes, it keeps its Action.
//
// The hook is called concurrently for requests of different connections. It
// may block, which holds up only its connection, and may call the node's
// methods except Close.
func (n *Node) OnRequest(hook func(args []string) Action) {
	n.change(func() { n.faults.onRequest = hook })
}

// OnCall sets the hook that decides about every command that a script calls. If
// the hook returns a text, the command fails with that error. n counts the
// calls of a script from 1. args is the command with its name in upper case;
// the hook must not change it. The hook must not call the node. A nil hook lets
// everything pass.
func (n *Node) OnCall(hook func(n int, args []string) string) {
	n.change(func() { n.faults.onCall = hook })
}

// Down makes the node unreachable: it breaks the connections, discards the
// requests that wait on them, and refuses new connections until Up.
func (n *Node) Down() {
	n.change(func() {
		n.faults.down = true
		n.breakConnsLocked()
	})
}

// Hang makes the node accept connections and requests without executing or
// answering any until Up, like a stopped process. Up executes the requests
// held back, including those whose clients have given up, and answers the
// others.
func (n *Node) Hang() {
	n.change(func() { n.faults.hung = true })
}

// Slow makes every request wait d before it executes, until Up or Slow(0).
func (n *Node) Slow(d time.Duration) {
	n.change(func() { n.faults.slow = d })
}

// SlowReplies makes every reply arrive d after its request has executed, until
// Up or SlowReplies(0).
func (n *Node) SlowReplies(d time.Duration) {
	n.change(func() { n.faults.slowReplies = d })
}

// DropReplies makes the node execute each of the next k requests, except the
// handshake (HELLO, AUTH, SELECT, CLIENT, PING), and then close its connection
// instead of answering. DropReplies(0) ends this; Up does not.
func (n *Node) DropReplies(k int) {
	n.change(func() { n.faults.dropReplies = k })
}

// Up ends Down, Hang, Slow and SlowReplies. Requests and replies that these
// held back continue at once.
func (n *Node) Up() {
	n.change(func() {
		n.faults.down = false
		n.faults.hung = false
		n.faults.slow = 0
		n.faults.slowReplies = 0
	})
}

// RestartEmpty simulates a crash and a restart without persistence: connections
// break, all data and scripts are lost, run_id and master_replid are new. The
// switches stay as they are, so a node that is down stays down.
func (n *Node) RestartEmpty() {
	n.change(func() {
		n.breakConnsLocked()
		n.identity.restart(time.Now())
	}, "FLUSHALL", "SCRIPT FLUSH")
}

// Restart simulates a crash and a restart that loses no write, as with an
// append-only file synced on every write. It is [Node.RestartEmpty], except
// that the data is kept.
func (n *Node) Restart() {
	n.change(func() {
		n.breakConnsLocked()
		n.identity.restart(time.Now())
	}, "SCRIPT FLUSH")
}

// Flush runs FLUSHALL: the data is lost, while run_id, master_replid, scripts
// and connections stay.
func (n *Node) Flush() {
	n.change(func() {}, "FLUSHALL")
}

// Promote makes the node a master with a new master_replid, as a failover to
// an up-to-date replica does. Data, run_id and connections stay.
func (n *Node) Promote() {
	n.change(func() {
		n.identity.replica = false
		n.identity.replid = newID()
	})
}

// SetReplica makes INFO report the role slave (true) or master (false). The
// node still accepts writes, like a writable replica.
func (n *Node) SetReplica(replica bool) {
	n.change(func() { n.identity.replica = replica })
}

// SetEvictionPolicy sets the maxmemory_policy and maxmemory that INFO reports.
// Nothing is evicted.
func (n *Node) SetEvictionPolicy(policy string, maxmemory int64) {
	n.change(func() {
		n.identity.policy = policy
		n.identity.maxmemory = maxmemory
	})
}

// SetVersion sets the redis_version that INFO reports; empty hides it.
func (n *Node) SetVersion(version string) {
	n.change(func() { n.identity.version = version })
}

// Refuse makes the node answer a command, also in scripts, with an error such
// as "BUSY Redis is busy running a script". An empty err ends that.
func (n *Node) Refuse(command, err string) {
	n.change(func() {
		if n.identity.refusals == nil {
			n.identity.refusals = map[string]string{}
		}
		n.identity.refusals[strings.ToUpper(command)] = err
	})
}

// StepClock moves the node's wall clock by d, as an administrator or a time
// daemon would; the clock runs on from there. Each key still expires at the
// same reading of that clock. A step forward expires the keys whose time it
// passes. A step back prolongs the keys that are left; expired keys do not come
// back.
func (n *Node) StepClock(d time.Duration) {
	n.exec.Lock()
	defer n.exec.Unlock()

	n.expireKeys()
	n.offset += d
	n.expireKeys()
	if d < 0 {
		// miniredis keeps the time that each key has left, and a step back of its clock does not change that.
		n.redis.FastForward(d)
	}
}

// expireKeys makes miniredis remove the keys that are expired at the node's present time. n.exec must be held.
func (n *Node) expireKeys() {
	n.redis.SetTime(time.Now().Add(n.offset))
	n.redis.DB(0)
}

// change calls set with n.mu held, then runs commands, and then wakes the connections, which wait for changes. No request
// executes between these steps.
func (n *Node) change(set func(), commands ...string) {
	n.exec.Lock()
	defer n.exec.Unlock()
	n.changeLocked(set, commands...)
}

// changeLocked is change with n.exec held.
func (n *Node) changeLocked(set func(), commands ...string) {
	n.mu.Lock()
	set()
	n.mu.Unlock()

	// The commands run without n.mu, because miniredis calls preHook, which locks it.
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
