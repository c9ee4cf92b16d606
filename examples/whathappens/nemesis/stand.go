package nemesis

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/examples/internal/stage"
	"github.com/lockkit/lockkit/testutil"
)

// A stand has the servers and processes of a part: nodes, clients, a proxy between each pair, a Redis for asynq, and
// the referee.
type stand struct {
	part
	o       Options
	clocks  *clocks
	record  *record
	referee *Referee
	queue   *testutil.Server
	proxies map[string][]*testutil.Proxy // by client

	mu      sync.Mutex
	servers []*testutil.Server // the nodes; a promotion replaces one
	retired []*testutil.Server // were nodes
	clients map[string]*stage.Child
	starts  int
}

// clientNames are the client processes.
var clientNames = []string{"a", "b", "c", "d"}

func newStand(ctx context.Context, o Options, p part, c *clocks) (*stand, error) {
	s := &stand{part: p, o: o, clocks: c, record: newRecord(), proxies: map[string][]*testutil.Proxy{}, clients: map[string]*stage.Child{}}
	if err := s.start(ctx); err != nil {
		s.close()
		return nil, err
	}

	return s, nil
}

func (s *stand) start(ctx context.Context) (err error) {
	if s.referee, err = startReferee(s.o.Break == BreakTokens, s.record.add); err != nil {
		return err
	}

	if s.queue, err = testutil.StartServer(""); err != nil {
		return err
	}

	var urls []string

	for range s.nodes {
		server, err := s.startServer()
		if err != nil {
			return err
		}
		s.servers = append(s.servers, server)
		urls = append(urls, "redis://"+server.Addr())
	}

	if err := stage.Provision(ctx, urls, core.TTL(ttl), core.WithRestartGuard(s.guard)); err != nil {
		return err
	}

	for _, name := range clientNames {
		for _, server := range s.servers {
			proxy, err := testutil.StartProxy(server.Addr())
			if err != nil {
				return err
			}
			s.proxies[name] = append(s.proxies[name], proxy)
		}
		if err := s.startClient(name, 0); err != nil {
			return err
		}
	}

	return nil
}

func (s *stand) startServer() (*testutil.Server, error) {
	return testutil.StartServer("", s.persistence.args()...)
}

func (s *stand) close() {
	for _, c := range s.clients {
		_ = c.Kill() // that is how it ends
	}

	for _, proxies := range s.proxies {
		for _, p := range proxies {
			p.Close()
		}
	}

	for _, server := range append(s.servers, s.retired...) {
		server.Close()
	}

	if s.queue != nil {
		s.queue.Close()
	}

	if s.referee != nil {
		s.referee.Close()
	}
}

// startClient starts a client process. Its clock is ahead by skew.
func (s *stand) startClient(name string, skew time.Duration) error {
	s.mu.Lock()
	s.starts++
	of := Role{
		Name: fmt.Sprint(name, s.starts), Referee: s.referee.Addr(), Queue: s.queue.Addr(), Lock: s.o.Lock,
		Guard: s.guard, Deaf: s.o.Break == BreakContext, Skew: skew, Seed: s.o.Seed + uint64(s.starts)<<32,
	}

	s.mu.Unlock()

	for _, p := range s.proxies[name] {
		of.Nodes = append(of.Nodes, "redis://"+p.Addr())
	}

	role, err := json.Marshal(of)
	if err != nil {
		return err
	}

	child, err := stage.Start(func(stdout io.Reader) {
		lines := json.NewDecoder(stdout)
		var e event
		for lines.Decode(&e) == nil { // until the end, which may cut a line off
			s.record.add(e)
			e = event{}
		}
	}, RoleEnv+"="+string(role), fmt.Sprintf("CRON_DEMO_PROCESS_SKEW=%d", skew))
	if err != nil {
		return err
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	s.clients[name] = child
	return nil
}

func (s *stand) client(name string) *stage.Child {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clients[name]
}

func (s *stand) server(node int) *testutil.Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.servers[node]
}

// replaceServer makes another server the node. Connections to the old one stay.
func (s *stand) replaceServer(node int, by *testutil.Server) {
	s.mu.Lock()
	s.retired = append(s.retired, s.servers[node])
	s.servers[node] = by
	s.mu.Unlock()

	for _, name := range clientNames {
		s.proxies[name][node].Move(by.Addr())
	}
}

// forgetting calls do, which makes servers lose some of their memory, and records the time that it took.
func (s *stand) forgetting(do func() error) error {
	began := time.Now().Round(0)
	err := do()
	s.record.add(event{Kind: isForgot, Asked: began})
	return err
}

// dismiss asks all clients to end, and returns when they have.
func (s *stand) dismiss() error {
	var stuck []string

	for _, name := range clientNames {
		s.client(name).Dismiss()
	}

	limit := time.After(patience)

	for _, name := range clientNames {
		select {
		case <-s.client(name).Gone():
			if err := s.client(name).Wait(); err != nil {
				stuck = append(stuck, fmt.Sprintf("client %s ended: %v", name, err))
			}
		case <-limit:
			stuck = append(stuck, fmt.Sprintf("client %s does not end", name))
		}
	}

	if stuck != nil {
		return errors.New(strings.Join(stuck, "; "))
	}

	return nil
}

// patience bounds each wait of the program.
const patience = time.Minute

// recover waits until each client is granted keys again, and says which are not.
func (s *stand) recover(ctx context.Context) {
	missing := map[string]bool{}

	for _, name := range clientNames {
		missing[name] = true
	}

	began := time.Now()
	s.record.add(event{At: began, Kind: isQuiet})
	limit := time.After(patience)

	for seen := 0; len(missing) > 0; {
		events, more := s.record.next(seen)
		seen += len(events)
		for _, e := range events {
			if e.Kind == isGranted && e.Work == workloads[0].name && e.At.After(began) {
				delete(missing, e.By[:1])
			}
		}
		if len(missing) == 0 {
			return
		}
		select {
		case <-more:
		case <-limit:
			for name := range missing {
				s.record.add(event{Kind: isStuck, By: name})
			}
			return
		case <-ctx.Done():
			return
		}
	}
}

// onServer calls do with a client of a server, not through a proxy.
func onServer(ctx context.Context, s *testutil.Server, do func(context.Context, *redis.Client) error) error {
	client := redis.NewClient(&redis.Options{Addr: s.Addr(), MaxRetries: -1, ReadTimeout: patience})
	defer client.Close()
	return do(ctx, client)
}

// Replicate makes a server a replica of another, and waits until it is; or a primary, if of is nil.
func Replicate(ctx context.Context, s, of *testutil.Server) error {
	return onServer(ctx, s, func(ctx context.Context, client *redis.Client) error {
		if of == nil {
			return client.ReplicaOf(ctx, "no", "one").Err()
		}
		host, port, _ := strings.Cut(of.Addr(), ":")
		if err := client.ReplicaOf(ctx, host, port).Err(); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		for {
			role, err := client.Do(ctx, "role").Slice()
			if err == nil && len(role) > 3 && role[3] == "connected" {
				return nil
			}
			if err := stage.Sleep(ctx, 20*time.Millisecond); err != nil {
				return fmt.Errorf("%s does not become a replica: %w", s.Addr(), err)
			}
		}
	})
}
