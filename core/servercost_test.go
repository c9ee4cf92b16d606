package core

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
	"github.com/lockkit/lockkit/testutil"
)

// BenchmarkServer counts the instructions that a redis-server executes for a request, sent alone and in batches,
// reading and answering included. Beside them: a script with a bare SET NX PX. It needs valgrind: make servercost.
func BenchmarkServer(b *testing.B) {
	if os.Getenv("LOCKKIT_CALLGRIND") == "" {
		b.Skip("it is slow and needs valgrind: make servercost")
	}
	srv := startCounted(b)
	for _, c := range []struct {
		name  string
		size  int
		guard bool
	}{{"alone, no guard", 1, false}, {"alone", 1, true}, {"batches of 4", 4, true}, {"batches of 16", 16, true}, {"batches of 64", 64, true}} {
		locks := srv.locker(b, c.guard)
		const requests = 640
		acquisitions, ends := locks.batches(b, requests, c.size)
		srv.send(b, acquisitions) // once in vain, to warm up
		srv.send(b, ends)
		acquisitions, ends = locks.batches(b, requests, c.size)
		b.Run("acquire "+c.name, func(b *testing.B) { srv.report(b, requests, func() { srv.send(b, acquisitions) }) })
		b.Run("release "+c.name, func(b *testing.B) { srv.report(b, requests, func() { srv.send(b, ends) }) })
		locks.Close(over())
	}
	bare := redis.NewScript("return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', 10000)")
	b.Run("bare SET NX PX", func(b *testing.B) {
		i := 0
		run := func() {
			for range 640 {
				i++
				if err := bare.Run(b.Context(), srv.client, []string{fmt.Sprint("bare ", i)}, "v").Err(); err != nil {
					b.Fatal(err)
				}
			}
		}
		run()
		srv.report(b, 640, run)
	})
}

// batches are requests that acquire leases on n keys, and such that end them, so many of them together.
func (l *Locker) batches(b *testing.B, n, size int) (acquisitions, ends [][]wire.Request) {
	for i := range n {
		lease := l.newLease(b.Context(), strconv.Itoa(i))
		acquisition := to(lease.acquiring(false), 0)
		lease.reached, lease.token = 1, 1
		end := to(lease.releasing(0), 0)
		if i%size == 0 {
			acquisitions, ends = append(acquisitions, nil), append(ends, nil)
		}
		last := len(ends) - 1
		acquisitions[last], ends[last] = append(acquisitions[last], acquisition), append(ends[last], end)
	}
	return acquisitions, ends
}

// report measures what each of n requests costs that run sends.
func (s *countedServer) report(b *testing.B, n int, run func()) {
	b.ReportMetric(s.count(b, run)/float64(n), "instructions/request")
}

// A countedServer is a redis-server under callgrind.
type countedServer struct {
	client *redis.Client
	head   *wire.Head
	memory string
	pid    string
	dir    string
	dumps  int
}

func startCounted(b *testing.B) *countedServer {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	l.Close()
	s := &countedServer{dir: b.TempDir()}
	server := exec.Command("valgrind", "--tool=callgrind", "--callgrind-out-file="+filepath.Join(s.dir, "out"),
		"redis-server", "--port", port, "--save", "", "--dir", s.dir, "--hz", "1", "--dynamic-hz", "no") // so that time costs little
	if err := server.Start(); err != nil {
		b.Fatalf("valgrind: %v", err)
	}
	b.Cleanup(func() {
		server.Process.Kill()
		server.Wait()
	})
	s.pid = strconv.Itoa(server.Process.Pid)
	s.client = redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + port, ReadTimeout: time.Minute, MaxRetries: -1})
	b.Cleanup(func() { s.client.Close() })
	testutil.Await(b, "ready", func() bool { return s.client.Ping(b.Context()).Err() == nil })
	return s
}

// locker is a Locker that gives the slow server time.
func (s *countedServer) locker(b *testing.B, guard bool) *Locker {
	l, err := New([]redis.UniversalClient{s.client}, quietly, unhurried, WithRestartGuard(guard))
	if err != nil {
		b.Fatal(err)
	}
	if err := l.Provision(b.Context()); err != nil {
		b.Fatal(err)
	}
	s.head, s.memory = l.e.Head.Load(), l.e.Nodes[0].Memory(0)
	return l
}

func (s *countedServer) send(b *testing.B, batches [][]wire.Request) {
	for _, batch := range batches {
		votes, err := coretest.Ask(s.client, s.head, s.memory, time.Now(), batch...)
		if err != nil || slices.ContainsFunc(votes, func(v quorum.Vote) bool { return v.Verdict != wire.Granted }) {
			b.Fatal(votes, err)
		}
	}
}

// count is how many instructions the server executes meanwhile.
func (s *countedServer) count(b *testing.B, run func()) float64 {
	control := func(order string) {
		if out, err := exec.Command("callgrind_control", order, s.pid).CombinedOutput(); err != nil {
			b.Fatalf("callgrind_control %s: %v: %s", order, err, out)
		}
	}
	control("--zero")
	run()
	control("--dump")
	s.dumps++
	profile := must(os.ReadFile(fmt.Sprintf("%s/out.%d", s.dir, s.dumps)))
	sum := regexp.MustCompile(`(?m)^summary: (\d+)`).FindSubmatch(profile)
	return must(strconv.ParseFloat(string(sum[1]), 64))
}
