package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// uncontended has each goroutine lock and unlock keys of its own, on 1, 3 and 5 nodes.
func uncontended(ctx context.Context, c config) ([]section, error) {
	rates := section{
		title: "Uncontended lock and unlock",
		text: `Each goroutine locks one of 16 keys of its own, drawn at random, unlocks it, and begins again. A pair is a lock
and its unlock; p50 and p99 are of the pair, and of the lock alone. Ratios are to the other peer's rate in the same round.`,
	}
	costs := section{
		title: "CPU per pair",
		text: `Of the same runs. Commands: what each server spent in the commands of one pair, by ` + "`INFO commandstats`" + ` (scripts,
and the SET that some peers send); it goes by the wall clock, so a server that has to wait for a core in the middle of a
command shows more than it used. Server: CPU of each server's process per pair (` + "`used_cpu_user` and `used_cpu_sys`" + `), which
adds reading, parsing and answering. Client: CPU of this process per pair, all peers' own work and this benchmark's
(some 0.3 µs) included. Where requests travel together, all three shrink. Batch: how many locks and unlocks a command
was for, on average; only lockkit has commands for several. The goal goes by the best round, and there by the
CPU of the process if that is less than the time in commands: neither can be less than what the commands took.`,
	}
	cost := table{head: []string{"nodes", "goroutines", "peer", "commands", "batch", "server", "client"}, text: 2}
	for _, n := range []int{1, 3, 5} {
		t := table{head: []string{"goroutines", "peer", "pairs/s", "min–max", "to redsync", "to rueidislock", "p50", "p99", "lock p50", "lock p99"}, text: 1}
		speed := newChart(fmt.Sprintf("pairs-%d.svg", n), fmt.Sprintf("Lock and unlock, %s", plural(n, "node")), "pairs per second")
		spent := newChart(fmt.Sprintf("server-cpu-%d.svg", n), fmt.Sprintf("CPU of a server, %s", plural(n, "node")), "µs per pair")
		err := onNodes(n, 0, func(on *nodes) error {
			for _, goroutines := range c.goroutines {
				rs, err := pairs(ctx, on, c.rounds, load{goroutines: goroutines, waves: waves, warm: c.warm, measure: c.measure})
				if err != nil {
					return err
				}
				for _, r := range rs {
					t.add(strconv.Itoa(goroutines), r.cell(), rate(r.rate), spread(r.low, r.high), times(r.ratio), times(toPeer(r, "rueidislock", rs)),
						short(r.whole.quantile(0.5)), short(r.whole.quantile(0.99)),
						short(r.locked.quantile(0.5)), short(r.locked.quantile(0.99)))
					cost.add(strconv.Itoa(n), strconv.Itoa(goroutines), r.peer,
						short(r.servers.commands), fmt.Sprintf("%.1f", r.batch()), short(r.servers.process), short(r.client))
					speed.add(r.peer, point{float64(goroutines), r.rate, r.low, r.high})
					us := float64(r.servers.process.Nanoseconds()) / 1e3
					spent.add(r.peer, point{float64(goroutines), us, us, us})
					rates.note(r, "%s, %d goroutines", plural(n, "node"), goroutines)
				}
				rates.goals = append(rates.goals, rateGoals(n, goroutines, rs)...)
				rates.goals = append(rates.goals, latencyGoals(n, goroutines, rs)...)
				if goroutines == slices.Max(c.goroutines) {
					costs.goals = append(costs.goals, serverGoals(n, goroutines, rs)...)
				}
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", plural(n, "node"), err)
		}
		rates.add(plural(n, "node"), &t, speed)
		costs.charts = append(costs.charts, spent)
	}
	costs.add("", &cost)
	return []section{rates, costs}, nil
}

// pairs has all peers that fit lock and unlock.
func pairs(ctx context.Context, on *nodes, rounds int, l load) (rs []result, err error) {
	es, err := enter(ctx, peersFor(len(on.servers)), on, l.goroutines)
	if err != nil {
		return nil, err
	}
	defer leave(es)
	if err := interleave(ctx, rounds, es, on, l); err != nil {
		return nil, err
	}
	return results(es), nil
}

// onNodes runs what is measured on n servers, which are new, and stops them.
func onNodes(n int, roundTrip time.Duration, measure func(*nodes) error) error {
	on, err := startNodes(n, roundTrip)
	if err != nil {
		return err
	}
	return errors.Join(measure(on), on.close())
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
