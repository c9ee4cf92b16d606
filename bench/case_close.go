package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"
)

// closing closes a peer that holds many leases, and looks for keys that nobody can have afterwards.
func closing(ctx context.Context, c config) ([]section, error) {
	s := section{
		title: "Closing with held leases",
		text: fmt.Sprintf(`Leases with a TTL of %v are held, and their holder is closed: lockkit by Close with a context that has ended, which takes
the leases away and frees their keys; rueidislock by Close, which does not say what becomes of them. Afterwards somebody
else tries each key on each node alone, long before the TTL could have freed it. Left taken: keys that somebody still has
there, node by node. Not to be had: keys that too many nodes have for a majority to grant them.`, c.closing.ttl),
	}
	t := table{head: []string{"nodes", "leases", "peer", "to take all", "Close", "left taken", "not to be had"}, text: 2}
	for _, n := range []int{1, 3} {
		left := &goal{
			what: fmt.Sprintf("%s, Close with 60,000 leases: keys left taken", plural(n, "node")), want: "none",
			less: c.closing.less(leaseConfig{60_000, c.closing.ttl}),
		}
		s.goals = append(s.goals, left)
		err := eachHolder(n, 0, func(p peer, on *nodes) error {
			a, err := abandon(ctx, c.closing, p, on)
			if err != nil {
				return err
			}
			t.add(strconv.Itoa(n), strconv.Itoa(c.closing.leases), p.name, short(a.take), short(a.closed), list(a.taken), strconv.Itoa(a.gone))
			left.add(p.name, fmt.Sprintf("%s of %d, in %s", list(a.taken), c.closing.leases, short(a.closed)),
				slices.Max(a.taken) == 0 && len(a.ungranted)+len(a.unknown) == 0 && a.err == nil)
			where := fmt.Sprintf("%s, %s", plural(n, "node"), p.name)
			if a.err != nil {
				s.noteSome([]error{a.err}, "%s: Close", where)
			}
			s.noteSome(a.ungranted, "%s: leases that were not granted, or lost before Close", where)
			s.noteSome(a.unknown, "%s: tries of single keys that failed", where)
			return nil
		}, lockkitNew)
		if err != nil {
			return nil, err
		}
	}
	s.add("", &t)
	return []section{s}, nil
}

// list is numbers in a cell.
func list(numbers []int) string {
	var b []byte
	for i, n := range numbers {
		if i > 0 {
			b = append(b, " + "...)
		}
		b = strconv.AppendInt(b, int64(n), 10)
	}
	return string(b)
}

// An abandoned is what a closed holder left behind.
type abandoned struct {
	take, closed time.Duration
	err          error
	ungranted    []error
	taken        []int   // keys that are taken, by node
	gone         int     // keys that nobody can have
	unknown      []error // of keys of which it is not known
}

func abandon(ctx context.Context, c leaseConfig, p peer, on *nodes) (a abandoned, err error) {
	h, err := openHolder(ctx, p, on, c)
	if err != nil {
		return a, err
	}
	hs := make(holdings, c.leases)
	start := time.Now()
	a.ungranted = hs.take(ctx, h)
	a.take = time.Since(start)
	a.ungranted = append(a.ungranted, hs.lost()...)

	closed := time.Now()
	a.err = h.abandon()
	a.closed = time.Since(closed)

	takenOn := make([]int, c.leases) // how many nodes have the key
	for i, addr := range on.addrs() {
		visitor, err := p.visit(addr, len(on.servers), c.ttl)
		if err != nil {
			return a, fmt.Errorf("node %d, after Close: %w", i, err)
		}
		taken, errs := taken(ctx, visitor, c.leases)
		visitor.close()
		a.taken = append(a.taken, len(taken))
		a.unknown = append(a.unknown, errs...)
		for _, key := range taken {
			takenOn[key]++
		}
	}
	// Nodes may have been told of a lease for the last time when it was taken.
	if took := time.Since(start); took > c.ttl/2 {
		a.unknown = append(a.unknown, fmt.Errorf("it took %v, so that some keys may have become free by the TTL", took))
	}
	majority := len(on.servers)/2 + 1
	for _, nodes := range takenOn {
		if len(on.servers)-nodes < majority {
			a.gone++
		}
	}
	return a, nil
}

// taken returns those of n keys that somebody has, and the errors of those of which it is not known.
func taken(ctx context.Context, l locker, n int) (keys []int, errs []error) {
	var mu sync.Mutex
	errs = inParallel(n, func(i int) error {
		unlock, err := l.tryLock(ctx, leaseKey(i))
		switch {
		case errors.Is(err, errHeld):
			mu.Lock()
			defer mu.Unlock()
			keys = append(keys, i)
			return nil
		case err != nil:
			return err
		}
		return unlock(ctx)
	})
	return keys, errs
}
