//go:build stalls && linux

package stall

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"weak"
)

// Enabled reports whether this build has stalls.
const Enabled = true

// perOwner is how often a point stops for the same owner.
const perOwner = 60

// A plan is what the environment asks for.
type plan struct {
	point Point
	node  int
	share float64
	spec  syscall.Timespec
}

var (
	planned = must(planOf(os.Getenv))
	stops   sync.Map // from a weak pointer to an owner to an *atomic.Int64
)

func must(p plan, err error) plan {
	if err != nil {
		panic(err)
	}
	return p
}

// planOf reads the plan. A value that it cannot read is an error: a campaign without stalls would prove nothing.
func planOf(getenv func(string) string) (plan, error) {
	p := plan{point: Point(getenv("LOCKKIT_STALL")), node: Anywhere, share: 1, spec: syscall.NsecToTimespec(int64(5 * time.Millisecond))}

	if s := getenv("LOCKKIT_STALL_NODE"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			return plan{}, fmt.Errorf("LOCKKIT_STALL_NODE: %w", err)
		}
		p.node = n
	}
	if s := getenv("LOCKKIT_STALL_SHARE"); s != "" {
		share, err := strconv.ParseFloat(s, 64)
		if err != nil {
			return plan{}, fmt.Errorf("LOCKKIT_STALL_SHARE: %w", err)
		}
		p.share = share
	}
	if s := getenv("LOCKKIT_STALL_FOR"); s != "" {
		d, err := time.ParseDuration(s)
		if err != nil {
			return plan{}, fmt.Errorf("LOCKKIT_STALL_FOR: %w", err)
		}
		p.spec = syscall.NsecToTimespec(d.Nanoseconds())
	}

	switch p.point {
	case "", Leave, Call, Deliver, After, Wake, Timer, Start:
		return p, nil
	default:
		return plan{}, fmt.Errorf("LOCKKIT_STALL: there is no point %q", p.point)
	}
}

// At stops the thread at a point, if that is the plan. The owner is what bounds the number of stalls.
func At[T any](p Point, node int, owner *T) {
	if !planned.stops(p, node) {
		return
	}
	count, _ := stops.LoadOrStore(weak.Make(owner), new(atomic.Int64))
	if count.(*atomic.Int64).Add(1) > perOwner {
		return
	}

	// Not time.Sleep: in a synctest bubble that passes at once, and other goroutines would run first.
	spec := planned.spec
	_ = syscall.Nanosleep(&spec, nil)
}

// stops reports whether this call stops, as far as its owner has stops left.
func (p plan) stops(at Point, node int) bool {
	if at != p.point {
		return false
	}
	if node != Anywhere && p.node != Anywhere && node != p.node {
		return false
	}
	return p.share >= 1 || rand.Float64() < p.share
}
