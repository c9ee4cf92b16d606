package nemesis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/lockkit/lockkit/examples/internal/stage"
)

// A fault is something that goes wrong, and is healed.
type fault struct {
	name              string
	class             class
	weight            int
	shortest, longest time.Duration // how long it lasts; both 0: it is over at once
	fits              func(*stand) bool
	aim               func(r *rand.Rand, p part) target
	strike            func(ctx context.Context, s *stand, t strike) error
	heal              func(ctx context.Context, s *stand, t strike) error // nil: there is nothing to heal
}

// A class of faults has a colour.
type class string

const (
	ofServers class = "servers"
	ofMemory  class = "memory"
	ofNetwork class = "network"
	ofClients class = "clients"
	ofClocks  class = "clocks"
)

// A target is what a fault concerns. Faults with a part of their targets in common wait for each other.
type target struct {
	nodes   []int
	clients []string
	network string // a part of the network, by name
}

func (t target) names() (all []string) {
	for _, i := range t.nodes {
		all = append(all, fmt.Sprint("node ", i))
	}

	for _, name := range t.clients {
		all = append(all, "client "+name)
	}

	if t.network != "" {
		all = []string{t.network} // only the way between nodes and clients is taken
	}

	return all
}

func (t target) String() string {
	text := ""
	if t.nodes != nil {
		text += fmt.Sprint(" nodes ", t.nodes)
	}

	if t.clients != nil {
		text += fmt.Sprint(" clients ", t.clients)
	}

	return text
}

// A strike is one fault of a plan.
type strike struct {
	*fault
	target
	at, length time.Duration
	draw       uint64 // chooses a variation
}

// on returns one of several variations.
func on[T any](s strike, variations ...T) T { return variations[s.draw%uint64(len(variations))] }

// lead is how long a part goes well at first.
const lead = 3 * time.Second

// draw makes the plan of a part. It only depends on the seed, the part and the clocks that can be moved.
func draw(s *stand) (plan []strike) {
	r := rand.New(rand.NewPCG(s.o.Seed, uint64(s.number)))
	var possible []*fault

	for i := range faults {
		f := &faults[i]
		if f.fits == nil || f.fits(s) {
			for range s.weightOf(f) {
				possible = append(possible, f)
			}
		}
	}

	busy := map[string]time.Duration{} // until when

	for at := lead; at < s.length; at += time.Duration(300+r.IntN(1_200)) * time.Millisecond {
		f := possible[r.IntN(len(possible))]
		st := strike{fault: f, target: f.aim(r, s.part), at: at, draw: r.Uint64()}
		st.length = f.shortest
		if f.longest > f.shortest {
			// Most faults are short.
			st.length += time.Duration(float64(f.longest-f.shortest) * r.Float64() * r.Float64())
		}
		taken := slices.ContainsFunc(st.target.names(), func(name string) bool { return busy[name] > at })
		if taken || at+st.length > s.length {
			continue
		}
		for _, name := range st.target.names() {
			busy[name] = at + st.length + time.Second
		}
		plan = append(plan, st)
	}

	return plan
}

// weightOf returns how often a fault is drawn. Without the restart guard, a majority of the servers must lose its memory
// during one lease to make two holders. In a part of two minutes that happens only if memory is lost often.
func (s *stand) weightOf(f *fault) int {
	if s.o.Break == BreakGuard && f.class == ofMemory {
		return 8 * f.weight
	}
	return f.weight
}

// play plays a plan, and returns when all faults are healed. The error says that one could not be.
func (s *stand) play(ctx context.Context, plan []strike) error {
	locks := map[string]*sync.Mutex{}

	for _, st := range plan {
		for _, name := range st.target.names() {
			locks[name] = &sync.Mutex{}
		}
	}

	began := time.Now()
	failed := make(chan error, len(plan))
	var playing sync.WaitGroup

	for _, st := range plan {
		if stage.Sleep(ctx, time.Until(began.Add(st.at))) != nil {
			break
		}
		playing.Go(func() {
			names := slices.Sorted(slices.Values(st.target.names())) // in one order, so that no two wait for each other
			for _, name := range names {
				locks[name].Lock()
				defer locks[name].Unlock()
			}
			failed <- s.one(ctx, st)
		})
	}

	playing.Wait()
	close(failed)
	var err error

	for e := range failed {
		err = errors.Join(err, e)
	}

	return errors.Join(err, context.Cause(ctx))
}

// one strikes, and heals.
func (s *stand) one(ctx context.Context, st strike) error {
	e := event{Kind: isStruck, Work: st.name, Text: st.target.String(), Key: string(st.class)}
	e.At = time.Now()
	striking, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := st.strike(striking, s, st); err != nil {
		e.Err = err.Error()
	}

	e.Asked = time.Now() // when it had begun
	s.record.add(e)
	_ = stage.Sleep(ctx, st.length)
	if st.fault.heal != nil {
		healing, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		if err := st.heal(healing, s, st); err != nil {
			return fmt.Errorf("%s%v is not over: %w", st.name, st.target, err)
		}
	}

	s.record.add(event{Kind: isHealed, Work: st.name, Text: st.target.String(), Key: string(st.class), Asked: e.At, Err: e.Err})
	return nil
}

// eachNode does something to all nodes of a strike at once.
func eachNode(t strike, do func(node int) error) error {
	failed := make(chan error, len(t.nodes))

	for _, i := range t.nodes {
		go func() { failed <- do(i) }()
	}

	var err error

	for range t.nodes {
		err = errors.Join(err, <-failed)
	}

	return err
}

// someNodes aims at one node most often, at a minority or a majority sometimes, and at all now and then.
func someNodes(r *rand.Rand, p part) target {
	size := 1

	switch n := r.IntN(20); {
	case n >= 19:
		size = p.nodes
	case n >= 16:
		size = p.nodes/2 + 1
	case n >= 12:
		size = max(1, (p.nodes-1)/2)
	}

	return target{nodes: slices.Sorted(slices.Values(r.Perm(p.nodes)[:size]))}
}

// manyNodes aims at a majority or at all nodes more often than someNodes. Two holders need a majority that forgets.
func manyNodes(r *rand.Rand, p part) target {
	size := [...]int{1, 1, 1, p.nodes/2 + 1, p.nodes}[r.IntN(5)]
	return target{nodes: slices.Sorted(slices.Values(r.Perm(p.nodes)[:size]))}
}

func oneNode(r *rand.Rand, p part) target { return target{nodes: []int{r.IntN(p.nodes)}} }

// someClients aims at one client or two.
func someClients(r *rand.Rand, _ part) (t target) {
	for _, i := range r.Perm(len(clientNames))[:1+r.IntN(2)] {
		t.clients = append(t.clients, clientNames[i])
	}

	return t
}
