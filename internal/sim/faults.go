package sim

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/testutil"
)

// A Fault does something to a node. If heal is not nil, it ends the fault.
type Fault func(n *testutil.Node, s Step) (heal func())

// Faults has the faults of nodes, by the names that steps give them. [Trial.Strike] carries out such steps. The field
// [Step.Who] has the number of the node.
var Faults = map[string]Fault{
	"down": func(n *testutil.Node, _ Step) func() {
		n.Down()
		return n.Up
	},
	"hang": func(n *testutil.Node, _ Step) func() {
		n.Hang()
		return n.Up
	},
	"slow": func(n *testutil.Node, s Step) func() {
		n.Slow(time.Duration(s.N) * time.Millisecond)
		return n.Up
	},
	"restart": func(n *testutil.Node, _ Step) func() {
		n.Restart()
		return nil
	},
	"restart empty": func(n *testutil.Node, _ Step) func() {
		n.RestartEmpty()
		return nil
	},
	"flush": func(n *testutil.Node, _ Step) func() {
		n.Flush()
		return nil
	},
	"promote": func(n *testutil.Node, _ Step) func() {
		n.Promote()
		return nil
	},
	"drop replies": func(n *testutil.Node, s Step) func() {
		n.DropReplies(s.N)
		return func() { n.DropReplies(0) }
	},
	"step clock": func(n *testutil.Node, s Step) func() {
		d := time.Duration(s.N) * time.Millisecond
		n.StepClock(d)
		return func() { n.StepClock(-d) }
	},
}

// Strike does step s to one of the nodes, and ends the fault after s.For. It must be called in the bubble. If s is none
// of [Faults], it does nothing and returns false.
func (t *Trial) Strike(nodes []*testutil.Node, s Step) bool {
	fault, ok := Faults[s.Do]
	if !ok {
		return false
	}

	heal := fault(nodes[s.Who%len(nodes)], s)
	if heal != nil {
		time.AfterFunc(s.For, heal)
	}

	return true
}

// Heal ends the faults of nodes, but does not restore their memory or clocks.
func Heal(nodes []*testutil.Node) {
	for _, n := range nodes {
		n.Up()
		n.DropReplies(0)
	}
}

// Network sets the hook of a link that delays and loses its messages according to the plan. "delay" is the mean delay
// of each request and each reply, in milliseconds. "late" of a thousand take up to a second longer. "lost" of a
// thousand requests, and as many of a thousand replies, do not arrive. Each link needs its own stream; see
// [Trial.Random].
func (t *Trial) Network(link *testutil.Link, stream uint64) {
	delay, late, lost := t.Is("delay"), t.Is("late"), t.Is("lost")
	isPerfect := delay == 0 && late == 0 && lost == 0
	if isPerfect {
		return
	}

	r := t.Random(stream)
	drawDelay := func() time.Duration {
		d := time.Duration(r.ExpFloat64() * float64(delay) * float64(time.Millisecond))
		if r.IntN(1000) < late {
			d += time.Duration(r.Int64N(int64(time.Second)))
		}

		return d
	}

	var mu sync.Mutex // guards r
	link.OnRequest(func(redis.Cmder) testutil.Action {
		mu.Lock()
		defer mu.Unlock()

		return testutil.Action{
			Delay:       drawDelay(),
			ReplyDelay:  drawDelay(),
			DropRequest: r.IntN(1000) < lost,
			DropReply:   r.IntN(1000) < lost,
		}
	})
}

// Pick returns one element of all.
func Pick[T any](r *rand.Rand, all ...T) T {
	return all[r.IntN(len(all))]
}

// Between returns a duration between lo and hi in whole milliseconds. Each order of magnitude is equally likely.
func Between(r *rand.Rand, lo, hi time.Duration) time.Duration {
	return time.Duration(float64(lo) * math.Pow(float64(hi)/float64(lo), r.Float64())).Truncate(time.Millisecond)
}

// Some returns a random subset of all: each element is included with probability 1/2.
func Some[T any](r *rand.Rand, all []T) []T {
	return slices.DeleteFunc(slices.Clone(all), func(T) bool { return r.IntN(2) == 0 })
}

// Recorded returns the number of nodes, apart from the node with index but, that have a completion record of a key with
// the given key prefix. If but is -1, all nodes count.
func Recorded(nodes []*testutil.Node, prefix, key string, but int) (n int) {
	for i, node := range nodes {
		if i != but && isCompleted(node, prefix, key) {
			n++
		}
	}
	return n
}

// isCompleted reports whether a node has a completion record of a key.
func isCompleted(n *testutil.Node, prefix, key string) bool {
	v, _ := n.Exec("GET", prefix+"{0}r:"+key)
	text, _ := v.(string)
	r, err := testutil.ParseResource(text)
	return err == nil && r.Record != nil
}
