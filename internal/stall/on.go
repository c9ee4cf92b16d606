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

// Enabled reports whether this build stalls.
const Enabled = true

// maxPerOwner limits the stalls of one owner.
const maxPerOwner = 60

// A plan says where and how long to stall, as set in the environment.
type plan struct {
	point    Point
	node     int
	share    float64 // of the calls
	duration syscall.Timespec
}

var (
	planned = must(parsePlan(os.Getenv))
	stalls  sync.Map // from a weak pointer to an owner to its number of stalls, an *atomic.Int64
)

func must(p plan, err error) plan {
	if err != nil {
		panic(err)
	}
	return p
}

// parsePlan reads the plan from the environment. An invalid value is an error, because a campaign without stalls would
// prove nothing.
func parsePlan(getenv func(string) string) (plan, error) {
	p := plan{
		point:    Point(getenv("LOCKKIT_STALL")),
		node:     Anywhere,
		share:    1,
		duration: syscall.NsecToTimespec(int64(5 * time.Millisecond)),
	}

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
		p.duration = syscall.NsecToTimespec(d.Nanoseconds())
	}

	switch p.point {
	case "", Leave, Call, Deliver, After, Wake, Timer, Start:
		return p, nil
	default:
		return plan{}, fmt.Errorf("LOCKKIT_STALL: there is no point %q", p.point)
	}
}

// At stops the thread at a point, if the plan says so. The number of stalls is limited per owner.
func At[T any](p Point, node int, owner *T) {
	if !planned.includes(p, node) {
		return
	}

	count, _ := stalls.LoadOrStore(weak.Make(owner), new(atomic.Int64))
	if count.(*atomic.Int64).Add(1) > maxPerOwner {
		return
	}

	// Not time.Sleep: in a synctest bubble it takes no real time, and other goroutines would run first.
	duration := planned.duration
	_ = syscall.Nanosleep(&duration, nil)
}

// includes reports whether the plan includes this call, by its point, its node and chance.
func (p plan) includes(at Point, node int) bool {
	if at != p.point {
		return false
	}
	if node != Anywhere && p.node != Anywhere && node != p.node {
		return false
	}
	return p.share >= 1 || rand.Float64() < p.share
}
