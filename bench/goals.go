package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// The peers that goals are about.
const (
	lockkitOpen = "lockkit, Open"
	lockkitNew  = "lockkit, New"
)

// A goal is what lockkit is to reach, and what it reached in this run.
type goal struct {
	what, want string
	less       string // what this run measured, if that is less than the goal is about
	got        []figure
}

// A figure is what was measured of a peer.
type figure struct {
	peer, text string
	met        bool
}

// isLockkit reports whether a peer is lockkit, in any of its ways.
func isLockkit(peer string) bool { return strings.HasPrefix(peer, "lockkit") }

// add adds what was measured of a peer. That of peers other than lockkit's is of no interest.
func (g *goal) add(peer, text string, met bool) {
	if isLockkit(peer) {
		g.got = append(g.got, figure{peer, text, met})
	}
}

// of is what was measured of a peer.
func (g *goal) of(peer string) string {
	if i := slices.IndexFunc(g.got, func(f figure) bool { return f.peer == peer }); i >= 0 {
		return g.got[i].text
	}
	return "–"
}

// verdict says whether the goal was met.
func (g *goal) verdict() string {
	missed := func(f figure) bool { return !f.met }
	switch i := slices.IndexFunc(g.got, func(f figure) bool { return f.met }); {
	case len(g.got) == 0:
		return "–"
	case g.less != "":
		return "– (" + g.less + ")"
	case i < 0:
		return "no"
	case slices.ContainsFunc(g.got, missed):
		return g.got[i].peer + " only"
	}
	return "yes"
}

// goalsOf is the section of all goals of sections, with a column for each peer that they are about.
func goalsOf(sections []section, peers ...string) section {
	s := section{
		title: "Goals",
		text: `A goal that is missed fails nothing: on a busy machine, and in a short run, figures vary by a quarter and more. "–": this run
measured less than the goal is about; in parentheses, what.`,
	}
	t := table{head: slices.Concat([]string{"case", "goal"}, peers, []string{"met"}), text: 0}
	for i := range sections {
		for _, g := range sections[i].goals {
			row := []string{g.what, g.want}
			for _, peer := range peers {
				row = append(row, g.of(peer))
			}
			t.add(append(row, g.verdict())...)
		}
	}
	s.add("", &t)
	return s
}

const goalGoroutines = 128

// rateGoals compares pairs per second, where goroutines are as many as the goals say.
func rateGoals(n, goroutines int, rs []result) []*goal {
	if goroutines != goalGoroutines {
		return nil
	}
	factors := map[string]float64{baseline: 3, "rueidislock": 1.3, "raw go-redis, auto-pipelined": 1}
	if n == 5 {
		factors[baseline] = 4
	}
	var goals []*goal
	for _, other := range rs {
		factor, ok := factors[other.peer]
		if !ok {
			continue
		}
		g := &goal{what: fmt.Sprintf("%s, %d goroutines: pairs/s", plural(n, "node"), goroutines), want: fmt.Sprintf("≥ %.1f× %s", factor, other.peer)}
		if factor == 1 {
			g.want = "aim: that of " + other.peer
		}
		for _, r := range rs {
			to := ratio(r, other)
			g.add(r.peer, fmt.Sprintf("%s, %s", rate(r.rate), times(to)), to >= factor)
		}
		goals = append(goals, g)
	}
	return goals
}

// latencyGoals compares what a pair takes a single goroutine.
func latencyGoals(n, goroutines int, rs []result) []*goal {
	i := slices.IndexFunc(rs, func(r result) bool { return r.peer == baseline })
	if goroutines != 1 || n == 3 || i < 0 {
		return nil
	}
	const most = 1.2
	base := rs[i].whole.quantile(0.5)
	g := &goal{what: plural(n, "node") + ", 1 goroutine: p50 of a pair", want: fmt.Sprintf("≤ %.1f× %s", most, baseline)}
	for _, r := range rs {
		p50 := r.whole.quantile(0.5)
		to := float64(p50) / float64(base)
		g.add(r.peer, fmt.Sprintf("%s, %s", short(p50), times(to)), to <= most)
	}
	return []*goal{g}
}

// A pair's lock and unlock are requests of their own, which may travel with others'.
const requestsOfPair = 2

// batch is how many locks and unlocks a command of a peer was for, on average.
func (r result) batch() float64 {
	if r.requests == 0 {
		return math.NaN()
	}
	return requestsOfPair / r.requests
}

// serverGoals is about the load with the most goroutines. It goes by the round in which servers had to wait least for a core.
func serverGoals(n, goroutines int, rs []result) []*goal {
	const most, least = 6 * time.Microsecond, 16
	g := &goal{
		what: fmt.Sprintf("%s, %d goroutines: server's time in commands per pair, batches of %d and more", plural(n, "node"), goroutines, least),
		want: "≤ " + short(most),
	}
	for _, r := range rs {
		if isLockkit(r.peer) && r.batch() < least {
			g.less = "smaller batches"
		}
		g.add(r.peer, fmt.Sprintf("%s, batches of %.1f", short(r.least), r.batch()), r.least <= most)
	}
	return []*goal{g}
}
