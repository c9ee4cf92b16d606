package core

import (
	"fmt"
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
	"github.com/lockkit/lockkit/internal/freeport"
	"github.com/lockkit/lockkit/testutil"
)

// serverCost has the instructions of a server for a request, relative to a script with a bare SET NX PX. That script
// takes about 30,000 instructions on Redis 7.0.15. If a script becomes cheaper, its value must be lowered.
var serverCost = map[string]float64{
	"acquire alone, no guard": 2.11, "release alone, no guard": 1.51,
	"acquire alone": 3.22, "release alone": 1.52,
	"acquire batches of 4, no guard": 1.46, "release batches of 4, no guard": 1.17,
	"acquire batches of 4": 1.74, "release batches of 4": 1.17,
	"acquire batches of 16": 1.26, "release batches of 16": 0.97,
	"acquire batches of 64": 1.11, "release batches of 64": 0.93,
}

// TestServerCost counts the instructions that a redis-server executes for a request, sent alone and in batches. Reading
// and answering are included. No request takes over 5 % more than serverCost says. The test needs valgrind: make
// servercost.
func TestServerCost(t *testing.T) {
	if os.Getenv("LOCKKIT_CALLGRIND") == "" {
		t.Skip("it is slow and needs valgrind: make servercost")
	}
	const requests = 640
	srv := startCounted(t)
	script, i := redis.NewScript("return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', 10000)"), 0
	bare := srv.least(requests, func() {
		for range requests {
			i++
			succeeds(t, script.Run(t.Context(), srv.client, []string{fmt.Sprint("bare ", i)}, "v").Err())
		}
	})[0]
	t.Logf("%-24s %7.0f instructions", "bare SET NX PX", bare)

	for _, c := range []struct {
		name  string
		size  int
		guard bool
	}{
		{"alone, no guard", 1, false}, {"alone", 1, true}, {"batches of 4, no guard", 4, false}, {"batches of 4", 4, true}, {"batches of 16", 16, true},
		{"batches of 64", 64, true}} {
		locks := srv.locker(c.guard)
		var acquisitions, ends [][]wire.Request
		least := srv.least(requests, func() {
			acquisitions, ends = locks.batches(t, requests, c.size)
			srv.send(acquisitions)
		}, func() { srv.send(ends) })

		for j, what := range []string{"acquire ", "release "} {
			what += c.name
			t.Logf("%-24s %7.0f instructions, %.2f of bare", what, least[j], least[j]/bare)
			if least[j]/bare > serverCost[what]*1.05 {
				t.Errorf("%s is %.2f of bare, and was %.2f", what, least[j]/bare, serverCost[what])
			}
		}
		locks.Close(over())
	}
}

// batches returns requests that acquire leases on n keys, and requests that release them, in batches of size.
func (l *Locker) batches(t *testing.T, n, size int) (acquisitions, ends [][]wire.Request) {
	for i := range n {
		lease := l.newLease(t.Context(), strconv.Itoa(i))
		acquisition := to(lease.attempt.newAcquireRound(false), 0)
		lease.attempt.exposure, lease.attempt.token = tokenReported, 1
		end := to(lease.attempt.newReleaseRound(0), 0)

		if i%size == 0 {
			acquisitions, ends = append(acquisitions, nil), append(ends, nil)
		}
		last := len(ends) - 1
		acquisitions[last], ends[last] = append(acquisitions[last], acquisition), append(ends[last], end)
	}
	return acquisitions, ends
}

// A countedServer is a redis-server under callgrind.
type countedServer struct {
	t      *testing.T
	client *redis.Client
	head   *wire.Preamble
	memory string
	pid    string
	dir    string
	dumps  int
}

func startCounted(t *testing.T) *countedServer {
	s := &countedServer{t: t, dir: t.TempDir()}
	server := must(freeport.Start(t.Context(), func(addr string) *exec.Cmd {
		// With --hz 1, the periodic tasks of the server cost little.
		return exec.Command("valgrind", "--tool=callgrind", "--callgrind-out-file="+filepath.Join(s.dir, "out"),
			"redis-server", "--port", strconv.Itoa(portOf(addr)), "--save", "", "--dir", s.dir, "--hz", "1", "--dynamic-hz", "no")
	}, accepts))
	t.Cleanup(server.Stop)
	s.pid = strconv.Itoa(server.Pid)
	s.client = redis.NewClient(&redis.Options{Addr: server.Addr, ReadTimeout: time.Minute, MaxRetries: -1})
	t.Cleanup(func() { s.client.Close() })
	testutil.Await(t, "ready", func() bool { return s.client.Ping(t.Context()).Err() == nil })

	// With this many keys, the server's hash table does not grow during the test. The second pass ends its rehashing.
	for range 2 {
		p := s.client.Pipeline()
		for i := range 10_000 {
			p.Set(t.Context(), fmt.Sprint("filler ", i), "v", 0)
		}
		must(p.Exec(t.Context()))
	}
	return s
}

// locker returns a Locker with timeouts for the slow server.
func (s *countedServer) locker(guard bool) *Locker {
	l := must(New([]redis.UniversalClient{s.client}, quietly, unhurried, WithRestartGuard(guard)))
	succeeds(s.t, l.Provision(s.t.Context()))
	s.head, s.memory = l.e.Head.Load(), l.e.Buckets[0].Memory(0)
	return l
}

func (s *countedServer) send(batches [][]wire.Request) {
	for _, batch := range batches {
		votes, err := coretest.Ask(s.client, s.head, s.memory, time.Now(), batch...)
		if err != nil || slices.ContainsFunc(votes, func(v quorum.Vote) bool { return v.Verdict != wire.Granted }) {
			s.t.Fatal(votes, err)
		}
	}
}

// least returns, for each function, the instructions per request that the server executes while it sends n requests. It
// is the least of three rounds, because the server has other tasks now and then. In a round the functions run one after
// another.
func (s *countedServer) least(n int, send ...func()) []float64 {
	least := make([]float64, len(send))
	for round := range 4 { // the first round does not count
		for i, f := range send {
			if got := s.count(f) / float64(n); round == 1 || round > 1 && got < least[i] {
				least[i] = got
			}
		}
	}
	return least
}

// count returns the number of instructions that the server executes during run.
func (s *countedServer) count(run func()) float64 {
	control := func(order string) {
		if out, err := exec.Command("callgrind_control", order, s.pid).CombinedOutput(); err != nil {
			s.t.Fatalf("callgrind_control %s: %v: %s", order, err, out)
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
