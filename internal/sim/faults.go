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

// A Fault happens to a node. mend, if it is not nil, ends it.
type Fault func(n *testutil.Node, s Step) (mend func())

// Faults are those of nodes, by the name that a [Step] does them by. Steps whose Who is a node are done by [Trial.Strike].
var Faults = map[string]Fault{
	"down":          func(n *testutil.Node, _ Step) func() { n.Down(); return n.Up },
	"hang":          func(n *testutil.Node, _ Step) func() { n.Hang(); return n.Up },
	"slow":          func(n *testutil.Node, s Step) func() { n.Slow(time.Duration(s.N) * time.Millisecond); return n.Up },
	"restart":       func(n *testutil.Node, _ Step) func() { n.Restart(); return nil },
	"restart empty": func(n *testutil.Node, _ Step) func() { n.RestartEmpty(); return nil },
	"flush":         func(n *testutil.Node, _ Step) func() { n.Flush(); return nil },
	"promote":       func(n *testutil.Node, _ Step) func() { n.Promote(); return nil },
	"drop replies":  func(n *testutil.Node, s Step) func() { n.DropReplies(s.N); return func() { n.DropReplies(0) } },
	"step clock": func(n *testutil.Node, s Step) func() {
		d := time.Duration(s.N) * time.Millisecond
		n.StepClock(d)
		return func() { n.StepClock(-d) }
	},
}

// Strike does s to one of the nodes, and mends it after s.For, in the bubble. It reports whether s is one of [Faults].
func (t *Trial) Strike(nodes []*testutil.Node, s Step) bool {
	fault, ok := Faults[s.Do]
	if !ok {
		return false
	}
	mend := fault(nodes[s.Who%len(nodes)], s)
	if mend != nil {
		time.AfterFunc(s.For, mend)
	}
	return true
}

// Heal ends what faults have done to nodes, but not to their memory or clocks.
func Heal(nodes []*testutil.Node) {
	for _, n := range nodes {
		n.Up()
		n.DropReplies(0)
	}
}

// Network gives the messages of a link their fates, by the plan: "delay" is the mean of each way in milliseconds, "late" how
// many in a thousand take up to a second more, and "lost" how many requests and how many replies in a thousand do not arrive.
// Each link has a stream of its own; see [Trial.Random].
func (t *Trial) Network(link *testutil.Link, stream uint64) {
	delay, late, lost := t.Is("delay"), t.Is("late"), t.Is("lost")
	isPerfect := delay == 0 && late == 0 && lost == 0
	if isPerfect {
		return
	}
	r := t.Random(stream)
	way := func() time.Duration {
		d := time.Duration(r.ExpFloat64() * float64(delay) * float64(time.Millisecond))
		if r.IntN(1000) < late {
			d += time.Duration(r.Int64N(int64(time.Second)))
		}
		return d
	}
	var mu sync.Mutex
	link.OnRequest(func(redis.Cmder) testutil.Action {
		mu.Lock()
		defer mu.Unlock()
		return testutil.Action{Delay: way(), ReplyDelay: way(), DropRequest: r.IntN(1000) < lost, DropReply: r.IntN(1000) < lost}
	})
}

// Pick returns one of all.
func Pick[T any](r *rand.Rand, all ...T) T { return all[r.IntN(len(all))] }

// Between returns a duration between lo and hi, of each order of magnitude as often, in whole milliseconds.
func Between(r *rand.Rand, lo, hi time.Duration) time.Duration {
	return time.Duration(float64(lo) * math.Pow(float64(hi)/float64(lo), r.Float64())).Truncate(time.Millisecond)
}

// Some returns those of all that a coin chooses.
func Some[T any](r *rand.Rand, all []T) []T {
	return slices.DeleteFunc(slices.Clone(all), func(T) bool { return r.IntN(2) == 0 })
}

// Recorded is on how many nodes beside one a key is completed, with the prefix of keys before it; beside none if but is -1.
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
