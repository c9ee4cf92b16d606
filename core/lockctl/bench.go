package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/urfave/cli/v3"

	"github.com/lockkit/lockkit/core"
)

func (a *app) bench() *cli.Command {
	return &cli.Command{
		Name: "bench", Usage: "what these nodes do from this machine: locks per second, and how fast a lock is handed on",
		Description: "It locks keys of its own (lockctl-bench:…), which it deletes at the end; tombstones of its attempts end by themselves within\n" +
			"seconds. It loads the nodes as hard as --parallel callers do: not at the busiest hour. A pair is a lock that is acquired and released. The hand-off is the time from the call of a release\n" +
			"until the process that waited has the lock, measured on one machine, so it includes both of its ways to the nodes.",
		Flags: []cli.Flag{
			&cli.DurationFlag{Name: "for", Value: 5 * time.Second, Usage: "how long to measure, in all"},
			&cli.IntFlag{Name: "parallel", Value: 16, Usage: "callers at a time, each with a key of its own"},
		},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			d, parallel := cmd.Duration("for"), cmd.Int("parallel")
			if cmd.Args().Present() || d <= 0 || parallel < 1 {
				return usagef("bench takes no arguments, and --for and --parallel of more than 0")
			}
			b := &bencher{a: a, cmd: cmd, keys: "lockctl-bench:" + rand.Text() + ":", parallel: parallel}
			result, err := b.run(ctx, d)
			if err != nil {
				if left := b.clean(ctx); !errors.Is(err, core.ErrUnavailable) { // which says enough
					err = errors.Join(err, left)
				}
				return err
			}
			if asJSON(cmd) {
				err = a.json(result)
			} else {
				a.printBench(result)
			}
			return errors.Join(err, b.clean(ctx))
		},
	}
}

// benchJSON is what bench prints. Latencies are microseconds.
type benchJSON struct {
	Nodes          int           `json:"nodes"`
	Parallel       int           `json:"parallel"`
	PairsPerSecond float64       `json:"pairs_per_second"`
	Failed         int           `json:"failed"` // attempts
	Acquire        quantilesJSON `json:"acquire"`
	Release        quantilesJSON `json:"release"`
	HandOff        quantilesJSON `json:"hand_off"`
}

type quantilesJSON struct {
	Count int   `json:"count"`
	P50   int64 `json:"p50_us"`
	P99   int64 `json:"p99_us"`
	Most  int64 `json:"most_us"`
}

func quantiles(took []time.Duration) quantilesJSON {
	if len(took) == 0 {
		return quantilesJSON{}
	}
	slices.Sort(took)
	at := func(q float64) int64 { return took[int(q*float64(len(took)-1))].Microseconds() }
	return quantilesJSON{len(took), at(0.5), at(0.99), at(1)}
}

// A bencher measures on keys of its own.
type bencher struct {
	a        *app
	cmd      *cli.Command
	keys     string // what they begin with
	parallel int
}

func (b *bencher) run(ctx context.Context, d time.Duration) (result benchJSON, err error) {
	one, err := b.a.open(b.cmd)
	if err != nil {
		return result, err
	}
	defer one.close()
	two, err := b.a.open(b.cmd) // as another process would
	if err != nil {
		return result, err
	}
	defer two.close()
	result.Nodes, result.Parallel = len(one.clients), b.parallel
	warm, err := one.TryAcquire(ctx, b.keys+"first") // loads the scripts, and says at once what would always fail
	if err != nil {
		return result, err
	}
	if err := warm.Release(ctx); err != nil {
		return result, err
	}
	if err := b.pairs(ctx, one, d/2, &result); err != nil {
		return result, err
	}
	return result, b.handOffs(ctx, one, two, d/2, &result)
}

// pairs has callers acquire and release for a time.
func (b *bencher) pairs(ctx context.Context, f *fleet, d time.Duration, result *benchJSON) error {
	var mu sync.Mutex
	var acquires, releases []time.Duration
	var failed error
	var callers sync.WaitGroup
	since := time.Now()
	for i := range b.parallel {
		callers.Go(func() {
			var acquired, released []time.Duration
			var errs []error
			for ctx.Err() == nil && time.Since(since) < d {
				began := time.Now()
				lease, err := f.TryAcquire(ctx, b.keys+strconv.Itoa(i))
				granted := time.Now()
				if err == nil {
					err = lease.Release(ctx)
					acquired, released = append(acquired, granted.Sub(began)), append(released, time.Since(granted))
				}
				if err != nil {
					errs = append(errs, err)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			acquires, releases, result.Failed = append(acquires, acquired...), append(releases, released...), result.Failed+len(errs)
			if len(errs) > 0 {
				failed = errs[0]
			}
		})
	}
	callers.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if len(acquires) == 0 {
		return fmt.Errorf("no lock was acquired: %w", failed)
	}
	result.PairsPerSecond = float64(len(releases)) / time.Since(since).Seconds()
	result.Acquire, result.Release = quantiles(acquires), quantiles(releases)
	return nil
}

// handOffs has a lock go to and fro between two processes for a time.
func (b *bencher) handOffs(ctx context.Context, holder, waiter *fleet, d time.Duration, result *benchJSON) error {
	key := b.keys + "handed on"
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	lease, err := holder.Acquire(ctx, key)
	if err != nil {
		return err
	}
	type grant struct {
		lease *core.Lease
		err   error
		at    time.Time
	}
	var took []time.Duration
	for since := time.Now(); time.Since(since) < d; holder, waiter = waiter, holder {
		granted := make(chan grant, 1)
		go func() {
			lease, err := waiter.Acquire(ctx, key)
			granted <- grant{lease, err, time.Now()}
		}()
		err := b.inQueue(ctx, holder, key)
		released := time.Now()
		if err == nil {
			err = lease.Release(ctx)
		}
		if err != nil {
			stop()
		}
		got := <-granted
		if err := errors.Join(err, got.err); err != nil {
			return err
		}
		lease = got.lease
		took = append(took, got.at.Sub(released))
	}
	result.HandOff = quantiles(took)
	return lease.Release(ctx)
}

// inQueue waits until somebody waits for a key on a quorum of nodes, or for a second: there may be no queues.
func (b *bencher) inQueue(ctx context.Context, f *fleet, key string) error {
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for since := time.Now(); time.Since(since) < time.Second; {
		s, err := f.key(ctx, key)
		if err != nil {
			return err
		}
		waited := 0
		for _, n := range s.Waiters {
			waited += min(n, 1)
		}
		if waited >= f.quorum() {
			return nil
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// clean deletes the keys.
func (b *bencher) clean(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	f, err := b.a.look(b.cmd)
	if err != nil {
		return nil //nolint:nilerr // run has said so
	}
	defer f.close()
	var left []error
	for i, err := range f.walk(ctx, f.keys.Resources(b.keys+"*"), func(pipe redis.Pipeliner, name string) redis.Cmder {
		return pipe.Del(ctx, name)
	}, func(reading) {}) {
		left = append(left, fmt.Errorf("%s: %w", nodeName(i, f.addr(i)), err))
	}
	if len(left) > 0 {
		return fmt.Errorf("keys that begin with %s may be left, and end by themselves within three hours: %s", b.keys, oneLine(errors.Join(left...)))
	}
	return nil
}

func (a *app) printBench(r benchJSON) {
	a.say("%.0f pairs per second on %s, with %s.", r.PairsPerSecond, plural(r.Nodes, "node", "nodes"), plural(r.Parallel, "caller", "callers"))
	if r.Failed > 0 {
		a.say("%s failed and are not counted.", plural(r.Failed, "attempt", "attempts"))
	}
	a.say("")
	t := table{head: []string{"", "COUNT", "P50", "P99", "MOST"}}
	for _, row := range []struct {
		name string
		q    quantilesJSON
	}{{"acquire", r.Acquire}, {"release", r.Release}, {"hand-off", r.HandOff}} {
		us := func(n int64) string { return brief(time.Duration(n) * time.Microsecond) }
		t.add(row.name, strconv.Itoa(row.q.Count), us(row.q.P50), us(row.q.P99), us(row.q.Most))
	}
	a.table(t)
}
