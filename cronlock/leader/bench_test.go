package leader_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/admin"
	"github.com/lockkit/lockkit/cronlock/leader"
	"github.com/lockkit/lockkit/testutil"
)

// BenchmarkSuccession is the time from a leader's Close to the election of the next, which has waited for a while, on
// real servers on loopback. Run it with -benchtime 100x or so: most of its time passes between the successions.
func BenchmarkSuccession(b *testing.B) {
	for _, nodes := range []int{1, 3, 5} {
		for _, followers := range []int{1, 10} {
			b.Run(fmt.Sprintf("nodes=%d/followers=%d", nodes, followers), func(b *testing.B) { benchmarkSuccession(b, nodes, followers) })
		}
	}
}

func benchmarkSuccession(b *testing.B, nodes, followers int) {
	servers := testutil.NewServers(b, nodes)
	elected := make(chan int, 1)
	all := make([]*leader.Elector, followers+1)
	lockers := make([]*core.Locker, followers+1)
	campaign := func(i int) {
		var err error
		if all[i], err = leader.New(lockers[i], "group", leader.OnElected(func(context.Context, leader.Term) { elected <- i })); err != nil {
			b.Fatal(err)
		}
	}
	for i := range all {
		var clients []redis.UniversalClient
		for _, s := range servers {
			clients = append(clients, s.Client())
		}
		var err error
		if lockers[i], err = core.New(clients, core.WithLogger(slog.New(slog.DiscardHandler))); err != nil {
			b.Fatal(err)
		}
		if err := admin.Provision(b.Context(), lockers[i]); err != nil {
			b.Fatal(err)
		}
		defer lockers[i].Close(context.Background())
		campaign(i)
		defer func() { all[i].Close(context.Background()) }()
	}
	leads := <-elected
	var took []time.Duration
	for range b.N {
		time.Sleep(time.Second + rand.N(time.Second))
		start := time.Now()
		if err := all[leads].Close(b.Context()); err != nil {
			b.Fatal(err)
		}
		next := <-elected
		took = append(took, time.Since(start))
		campaign(leads)
		leads = next
	}
	slices.Sort(took)
	at := func(part float64) float64 {
		return float64(took[int(part*float64(len(took)-1))].Microseconds()) / 1000
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(at(0.5), "p50-ms")
	b.ReportMetric(at(0.9), "p90-ms")
	b.ReportMetric(at(1), "max-ms")
}
