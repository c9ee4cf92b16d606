package main

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/cronlock"
	"github.com/lockkit/lockkit/internal/pause"
)

const (
	cronReplicas = 3
	cronNodes    = 3

	lockkitCron  = "lockkit/cronlock"
	goalCronTick = 180 // requests, with three replicas and three nodes
)

// A cronLoad is so many jobs that do nothing, due together.
type cronLoad struct {
	jobs   int
	period time.Duration
	ticks  int // that are measured
}

var cronLoads = []cronLoad{{1, time.Second, 30}, {1, 10 * time.Second, 6}, {500, 10 * time.Second, 3}, {500, time.Minute, 1}}

// cron measures what ticks cost, of jobs that do nothing.
func cron(ctx context.Context, _ config) ([]section, error) {
	s := section{
		title: "What a tick costs",
		text: fmt.Sprintf(`Jobs that do nothing on %d replicas, which are in this process and have clients of their own, and %d nodes. All jobs are
due at the same instants. Requests are what clients sent to all nodes: scripts, and looks at keys. CPU is that of the %d
replicas together, and that of each node, of one core. Late: by how much runs started after their ticks, of which up to
50 ms are on purpose. Started: of all ticks that fell due. A job of every minute takes about 140 requests
a tick with what Lockers send to idle nodes in between (TestRequestsPerTick of cronlock).`, cronReplicas, cronNodes, cronReplicas),
	}
	t := table{head: []string{"jobs", "every", "requests per tick", "requests/s and node", "CPU of replicas", "CPU per tick", "CPU of a node", "late p50", "late p99", "started"}}
	for _, load := range cronLoads {
		err := onNodes(cronNodes, 0, func(on *nodes) error {
			got, err := load.measure(ctx, on)
			if err != nil {
				return err
			}
			n, lasts := load.jobs*load.ticks, time.Duration(load.ticks)*load.period
			each := float64(got.requests) / float64(n)
			share := func(d time.Duration) string { return number(100*d.Seconds()/lasts.Seconds()) + " %" }
			t.add(strconv.Itoa(load.jobs), load.period.String(), fmt.Sprintf("%.0f", each), rate(float64(got.requests)/lasts.Seconds()/cronNodes),
				share(got.replicas), short(got.replicas/time.Duration(n)), share(got.node), short(got.late.quantile(0.5)), short(got.late.quantile(0.99)),
				fmt.Sprintf("%d of %d", got.started, n))
			if load == (cronLoad{1, 10 * time.Second, 6}) {
				g := &goal{what: fmt.Sprintf("a tick, %d replicas, %d nodes: requests", cronReplicas, cronNodes), want: fmt.Sprintf("≤ %d", goalCronTick)}
				g.add(lockkitCron, fmt.Sprintf("%.0f", each), each <= goalCronTick)
				s.goals = append(s.goals, g)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	s.add("", &t)
	return []section{s}, nil
}

// A cronCost is what the ticks of a load took.
type cronCost struct {
	requests, started int
	replicas, node    time.Duration // CPU
	late              histogram
}

// A cronCount counts what a client sends: scripts, and one command of each look.
type cronCount struct{ sent atomic.Int64 }

func (c *cronCount) see(commands ...redis.Cmder) {
	for _, cmd := range commands {
		if slices.Contains([]string{"evalsha", "eval", "time"}, cmd.Name()) {
			c.sent.Add(1)
		}
	}
}

func (c *cronCount) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *cronCount) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.see(cmd)
		return next(ctx, cmd)
	}
}

func (c *cronCount) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.see(cmds...)
		return next(ctx, cmds)
	}
}

// measure runs the jobs for so many ticks, from between two ticks to between two others.
func (l cronLoad) measure(ctx context.Context, on *nodes) (got cronCost, err error) {
	if err := provision(ctx, on.addrs()); err != nil {
		return got, err
	}
	var count cronCount
	// The first tick of new jobs has more to read.
	from := time.Now().Truncate(l.period).Add(2*l.period + l.period/2)
	to := from.Add(time.Duration(l.ticks) * l.period)
	var mu sync.Mutex
	run := func(ctx context.Context) error {
		run, _ := cronlock.FromContext(ctx)
		mu.Lock()
		defer mu.Unlock()
		if run.Tick.After(from) && run.Tick.Before(to) {
			got.started++
			got.late.add(time.Since(run.Tick))
		}
		return nil
	}
	for range cronReplicas {
		locker, closeLocker, err := count.locker(on.addrs())
		if err != nil {
			return got, err
		}
		defer closeLocker()
		service, err := cronlock.New(locker, "bench")
		if err != nil {
			return got, err
		}
		defer service.Close(ctx)
		for i := range l.jobs {
			if _, err := service.Add(fmt.Sprint("job", i), cronlock.Every(l.period), run); err != nil {
				return got, err
			}
		}
	}
	if !pause.For(ctx, time.Until(from)) {
		return got, context.Cause(ctx)
	}
	sent, cpu := count.sent.Load(), clientCPU()
	before, err := on.use(ctx, "get")
	if err != nil {
		return got, err
	}
	if !pause.For(ctx, time.Until(to)) {
		return got, context.Cause(ctx)
	}
	got.requests, got.replicas = int(count.sent.Load()-sent), clientCPU()-cpu
	after, err := on.use(ctx, "get")
	if err != nil {
		return got, err
	}
	got.node = spent(before, after).process
	mu.Lock() // the services run on until they are closed
	defer mu.Unlock()
	return got, nil
}

// locker is a replica's, on clients that are counted.
func (c *cronCount) locker(addrs []string) (*core.Locker, func(), error) {
	var clients []redis.UniversalClient
	for _, addr := range addrs {
		client := redis.NewClient(&redis.Options{Addr: addr})
		client.AddHook(c)
		clients = append(clients, client)
	}
	closeClients := func() {
		for _, client := range clients {
			client.Close()
		}
	}
	locker, err := core.New(clients, core.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		closeClients()
		return nil, nil, err
	}
	return locker, func() {
		locker.Close(context.Background())
		closeClients()
	}, nil
}
