package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"
)

const (
	goalHandoffs   = 100
	goalHandoffP50 = 500 * time.Microsecond
	goalHandoffP99 = 3 * time.Millisecond
)

// A handoffKind is for how long the waiter has waited when the holder releases.
type handoffKind struct {
	name        string
	least, most time.Duration
}

var handoffKinds = []handoffKind{
	{"has just come", 5 * time.Millisecond, 15 * time.Millisecond},
	{"has waited", 200 * time.Millisecond, 400 * time.Millisecond},
}

// handoff has one process release a key for which another one waits.
func handoff(ctx context.Context, c config) ([]section, error) {
	s := section{
		title: "Hand-off to another process",
		text: fmt.Sprintf(`This process holds a key, and another process of this program waits for it, alone. Measured is the time from just before the
call of the release until the waiter has the key, by the system's monotonic clock. The waiter has just come (5 to 15 ms
before), or has waited for 200 to 400 ms. %d keys at a time are handed over so, by one locker to one other; they seldom
meet. The first hand-off of each key is not counted. Raw: SET NX, and a script that
deletes and publishes, with go-redis, without a queue or a fallback. %s %s`, c.handoffKeys, stoodText, waitingText),
	}
	t := table{head: []string{"nodes", "waiter", "peer", "p50", "p99", "most", "hand-offs", "stood still"}, text: 2}
	for _, n := range []int{1, 3} {
		took, stood := map[string][]histogram{}, map[string]time.Duration{} // by peer
		err := eachWaiting(&s, n, handoffPeers, func(p peer, on *nodes) error {
			return inProcesses(ctx, 1, 1, p, on, func(others []*process) error {
				watching := startBystander()
				hs, err := handOver(ctx, c, p, on, others[0])
				took[p.name], stood[p.name] = hs.took, watching.end()
				s.noteSome(hs.failed, "%s, %s: hand-offs", plural(n, "node"), p.name)
				return err
			})
		})
		if err != nil {
			return nil, err
		}
		for k, kind := range handoffKinds {
			for _, p := range fitting(n, handoffPeers) {
				h := &took[p.name][k]
				t.add(strconv.Itoa(n), kind.name, p.name, short(h.quantile(0.5)), short(h.quantile(0.99)), short(h.quantile(1)), strconv.Itoa(h.total), short(stood[p.name]))
			}
			s.goals = append(s.goals, handoffGoals(n, k, took)...)
		}
	}
	s.add("", &t)
	return []section{s}, nil
}

func handoffGoals(n, kind int, took map[string][]histogram) []*goal {
	what := fmt.Sprintf("hand-off to another process, %s, waiter %s", plural(n, "node"), handoffKinds[kind].name)
	h := &took[lockkitOpen][kind]
	less := ""
	if h.total < goalHandoffs {
		less = plural(h.total, "hand-off")
	}
	half, tail := h.quantile(0.5), h.quantile(0.99)
	p50 := &goal{what: what + ": p50", want: "≤ " + short(goalHandoffP50), less: less}
	p50.add(lockkitOpen, short(half), h.total > 0 && half <= goalHandoffP50)
	p99 := &goal{what: what + ": p99", want: "≤ " + short(goalHandoffP99), less: less}
	p99.add(lockkitOpen, short(tail), h.total > 0 && tail <= goalHandoffP99)
	goals := []*goal{p50, p99}
	if other, ok := took["rueidislock"]; ok {
		theirs := other[kind].quantile(0.5)
		to := float64(half) / float64(theirs)
		than := &goal{what: what + ": p50", want: "≤ rueidislock", less: less}
		than.add(lockkitOpen, fmt.Sprintf("%s, %s", short(half), times(to)), h.total > 0 && to <= 1)
		goals = append(goals, than)
	}
	return goals
}

// A handing is what hand-offs took.
type handing struct {
	took   []histogram // by kind
	failed []error
}

var (
	errNotWaiting = errors.New("the waiter began too late, and was not counted")
	errTooSoon    = errors.New("granted before the release")
)

// handOver hands keys over from here to another process.
func handOver(ctx context.Context, c config, p peer, on *nodes, other *process) (handing, error) {
	hs := handing{took: make([]histogram, len(handoffKinds))}
	holder, err := p.open(ctx, on.addrs(), ttl)
	if err != nil {
		return hs, err
	}
	defer holder.close()
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errHung)
	defer cancel()
	var mu sync.Mutex
	var keys sync.WaitGroup
	for k := range c.handoffKeys {
		keys.Go(func() {
			for i := range len(handoffKinds)*c.handoffsEach + 1 {
				kind := (k + i) % len(handoffKinds)
				took, err := handOne(ctx, holder, other, fmt.Sprintf("bench:handoff:%d", k), handoffKinds[kind])
				mu.Lock()
				switch {
				case err != nil:
					hs.failed = append(hs.failed, err)
				case i > 0:
					hs.took[kind].add(took)
				}
				mu.Unlock()
				if err != nil && err != errNotWaiting && err != errTooSoon {
					return // the waiter may be there still
				}
			}
		})
	}
	if !returned(&keys, patience+grace) {
		return handing{took: make([]histogram, len(handoffKinds))}, errHung
	}
	if err := context.Cause(ctx); err != nil {
		return hs, fmt.Errorf("%w after %s", err, plural(hs.total(), "hand-off"))
	}
	return hs, nil
}

func (h handing) total() (sum int) {
	for i := range h.took {
		sum += h.took[i].total
	}
	return sum
}

func handOne(ctx context.Context, holder locker, other *process, key string, kind handoffKind) (time.Duration, error) {
	unlock, err := holder.lock(ctx, key)
	if err != nil {
		return 0, err
	}
	var wait Wait
	awaited := make(chan error, 1)
	go func() { awaited <- other.call(ctx, "Await", key, &wait) }()
	time.Sleep(kind.least + rand.N(kind.most-kind.least))
	released := clock()
	if err := errors.Join(unlock(ctx), <-awaited); err != nil {
		return 0, err
	}
	switch {
	case wait.Begun > released-kind.least/2:
		return 0, errNotWaiting
	case wait.Granted < released:
		return 0, errTooSoon
	}
	return wait.Granted - released, nil
}
