package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/examples/internal/stage"
	"github.com/lockkit/lockkit/testutil"
)

// A world is three nodes, three processes of the service, a proxy between each pair, and a Redis for asynq.
type world struct {
	random    *rand.Rand
	breaks    string // what is broken on purpose
	nodes     []*testutil.Server
	queue     *testutil.Server
	proxies   map[string][]*testutil.Proxy // by process
	processes map[string]*process

	mu  sync.Mutex
	rec *record // of the scene
}

var names = []string{"a", "b", "c"}

// A process is one of the service, seen from the program.
type process struct {
	*stage.Child
	addr   string // of its HTTP server
	paused bool
}

// patience is how long the program waits for what must come for it to go on.
const patience = time.Minute

func newWorld(ctx context.Context, random *rand.Rand, breaks string) (*world, error) {
	w := &world{random: random, breaks: breaks, proxies: map[string][]*testutil.Proxy{}, processes: map[string]*process{}, rec: new(record)}
	err := w.start(ctx)
	if err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

func (w *world) start(ctx context.Context) error {
	for range 3 {
		// Scenes that restart nodes empty remove their files.
		s, err := testutil.StartServer("", "--appendonly", "yes", "--appendfsync", "everysec")
		if err != nil {
			return err
		}
		w.nodes = append(w.nodes, s)
	}
	queue, err := testutil.StartServer("")
	if err != nil {
		return err
	}
	w.queue = queue
	for _, name := range names {
		for _, node := range w.nodes {
			p, err := testutil.StartProxy(node.Addr())
			if err != nil {
				return err
			}
			w.proxies[name] = append(w.proxies[name], p)
		}
	}
	if err := stage.Provision(ctx, urls(w.nodes...)); err != nil {
		return err
	}
	for _, name := range names {
		if err := w.startProcess(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) close() {
	for _, p := range w.processes {
		_ = p.Kill()
	}
	for _, proxies := range w.proxies {
		for _, p := range proxies {
			p.Close()
		}
	}
	for _, s := range w.nodes {
		s.Close()
	}
	if w.queue != nil {
		w.queue.Close()
	}
}

func urls(servers ...*testutil.Server) (all []string) {
	for _, s := range servers {
		all = append(all, "redis://"+s.Addr())
	}
	return all
}

// urlsOf returns where a process reaches the nodes.
func (w *world) urlsOf(name string) (all []string) {
	for _, p := range w.proxies[name] {
		all = append(all, "redis://"+p.Addr())
	}
	return all
}

// roleEnv makes a process one of the service; it has a role.
const roleEnv = "LOCKKIT_PROMISES_ROLE"

// startProcess returns when the process serves HTTP.
func (w *world) startProcess(ctx context.Context, name string) error {
	of, err := json.Marshal(role{Name: name, Nodes: w.urlsOf(name), Queue: w.queue.Addr(), Break: w.breaks})
	if err != nil {
		return err
	}
	ready := make(chan string, 1)
	child, err := stage.Start(func(stdout io.Reader) {
		lines := json.NewDecoder(stdout)
		var e event
		for lines.Decode(&e) == nil { // until the end, which may cut a line off
			if e.Kind == isReady {
				ready <- e.Text
			}
			w.add(e)
			e = event{}
		}
	}, roleEnv+"="+string(of))
	if err != nil {
		return err
	}
	p := &process{Child: child}
	w.mu.Lock()
	w.processes[name] = p
	w.mu.Unlock()
	select {
	case addr := <-ready:
		w.mu.Lock()
		p.addr = addr
		w.mu.Unlock()
		return nil
	case <-child.Gone():
		return fmt.Errorf("process %s ended: %w", name, child.Wait())
	case <-time.After(patience):
		return fmt.Errorf("process %s does not start", name)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (w *world) process(name string) *process {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.processes[name]
}

// addr is empty while a process does not serve HTTP.
func (w *world) addr(name string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.processes[name].addr
}

func (w *world) add(e event) {
	w.mu.Lock()
	rec := w.rec
	w.mu.Unlock()
	if e.At.IsZero() {
		e.At = time.Now()
	}
	rec.Add(e)
}

// begin begins the record of a scene.
func (w *world) begin() *record {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rec = new(record)
	return w.rec
}

func (w *world) tell(name string, o order) error { return w.process(name).Tell(o) }

func (w *world) kill(name string) error {
	p := w.process(name)
	w.mu.Lock()
	p.addr = ""
	w.mu.Unlock()
	_ = p.Kill() // that is how it ends
	return nil
}

// unreachable makes nodes refuse or swallow all that some processes send.
func (w *world) unreachable(of []string, nodes []int, hang bool) {
	for _, name := range of {
		for _, i := range nodes {
			p := w.proxies[name][i]
			if hang {
				p.BlackHole(testutil.ToServer, true)
				p.BlackHole(testutil.ToClient, true)
				continue
			}
			p.Refuse(true)
			p.Cut()
		}
	}
}

// reachable ends all that is wrong between processes and nodes.
func (w *world) reachable() {
	for _, name := range names {
		for i, p := range w.proxies[name] {
			p.BlackHole(testutil.ToServer, false)
			p.BlackHole(testutil.ToClient, false)
			p.Refuse(false)
			p.Mangle(testutil.ToClient, nil)
			p.Move(w.nodes[i].Addr())
			p.Cut()
		}
	}
}

// onNodes does something to some nodes at once.
func (w *world) onNodes(nodes []int, do func(*testutil.Server) error) error {
	failed := make(chan error, len(nodes))
	for _, i := range nodes {
		go func() { failed <- do(w.nodes[i]) }()
	}
	var err error
	for range nodes {
		err = errors.Join(err, <-failed)
	}
	return err
}

// heal ends whatever a scene has begun, and returns when all nodes vote and all processes are up.
func (w *world) heal(ctx context.Context) error {
	w.reachable()
	for _, name := range names {
		if err := w.healProcess(ctx, name); err != nil {
			return err
		}
	}
	return w.voting(ctx)
}

func (w *world) healProcess(ctx context.Context, name string) error {
	p := w.process(name)
	select {
	case <-p.Gone():
		return w.startProcess(ctx, name)
	default:
	}
	if p.paused {
		p.paused = false
		if err := p.Resume(); err != nil {
			return err
		}
	}
	if err := p.Tell(order{Do: drop}); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, err := w.record().Wait(ctx, func(e event) bool { return e.Kind == isIdle && e.Process == name })
	if err != nil {
		return fmt.Errorf("process %s does not end its calls: %w", name, err)
	}
	return nil
}

func (w *world) record() *record {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rec
}

// voting returns when all nodes vote for all processes.
func (w *world) voting(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for _, name := range names {
		l, err := core.Open(w.urlsOf(name))
		if err != nil {
			return err
		}
		for {
			state, err := l.Inspect(ctx, "anything")
			if err == nil && votes(state) {
				break
			}
			if err := stage.Sleep(ctx, 200*time.Millisecond); err != nil {
				return fmt.Errorf("nodes do not vote again: %v", state.Nodes)
			}
		}
		if err := l.Close(ctx); err != nil {
			return err
		}
	}
	return nil
}

func votes(state core.KeyState) bool {
	for _, n := range state.Nodes {
		if n.Verdict != core.VerdictGone && n.Verdict != core.VerdictHeld && n.Verdict != core.VerdictDone {
			return false
		}
	}
	return len(state.Nodes) > 0
}

// setOnNodes changes the configuration of all nodes.
func (w *world) setOnNodes(ctx context.Context, name, value string) error {
	return w.onNodes([]int{0, 1, 2}, func(s *testutil.Server) error {
		client := redis.NewClient(&redis.Options{Addr: s.Addr()})
		defer client.Close()
		return client.ConfigSet(ctx, name, value).Err()
	})
}

// logged reports whether an event is a log line that has a text.
func logged(text string) filter {
	return func(e event) bool { return e.Kind == isLog && strings.Contains(e.Text, text) }
}
