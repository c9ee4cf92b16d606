package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/redis/go-redis/v9"
)

func main() {
	addrs := flag.String("addrs", "127.0.0.1:7399", "")
	g := flag.Int("g", 128, "")
	d := flag.Duration("d", 3*time.Second, "")
	cpu := flag.String("cpu", "", "")
	flag.Parse()
	ctx := context.Background()
	var cs []redis.UniversalClient
	for _, a := range strings.Split(*addrs, ",") {
		c := redis.NewClient(&redis.Options{Addr: a})
		c.FlushAll(ctx)
		cs = append(cs, c)
	}
	l, err := core.New(cs, core.WithLogger(slog.New(slog.NewTextHandler(io.Discard, nil))))
	if err != nil {
		panic(err)
	}
	for l.Provision(ctx) != nil {
		time.Sleep(10 * time.Millisecond)
	}
	if *cpu != "" {
		f, _ := os.Create(*cpu)
		pprof.StartCPUProfile(f)
		defer pprof.StopCPUProfile()
	}
	for _, c := range cs {
		c.ConfigResetStat(ctx)
	}
	var n, errs atomic.Int64
	end := time.Now().Add(*d)
	var wg sync.WaitGroup
	for i := range *g {
		wg.Go(func() {
			for j := 0; time.Now().Before(end); j++ {
				lease, err := l.Acquire(ctx, "k:"+strconv.Itoa(i)+":"+strconv.Itoa(j%64))
				if err != nil {
					errs.Add(1)
					continue
				}
				if lease.Release(ctx) != nil {
					errs.Add(1)
				}
				n.Add(1)
			}
		})
	}
	wg.Wait()
	pairs := n.Load()
	fmt.Printf("g=%d nodes=%d: %.0f pairs/s, %d errors\n", *g, len(cs), float64(pairs)/d.Seconds(), errs.Load())
	for i, c := range cs {
		s := c.Info(ctx, "commandstats").Val()
		for _, line := range strings.Split(s, "\r\n") {
			if strings.HasPrefix(line, "cmdstat_evalsha") || i == 0 && strings.HasPrefix(line, "cmdstat_") {
				f := strings.Split(strings.SplitN(line, ":", 2)[1], ",")
				calls, _ := strconv.ParseFloat(strings.TrimPrefix(f[0], "calls="), 64)
				usec, _ := strconv.ParseFloat(strings.TrimPrefix(f[1], "usec="), 64)
				fmt.Printf("  node %d %s: %.3f calls per pair, %.2f us per pair\n", i, strings.SplitN(line, ":", 2)[0], calls/float64(pairs), usec/float64(pairs))
			}
		}
	}
}
