package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/queuelock"
)

// A fleet is the asynq servers of one queue.
type fleet struct {
	addr    string // of its Redis
	queue   string
	client  *asynq.Client
	workers []*queueWorker

	mu    sync.Mutex
	left  map[string]string // of tasks: id to kind
	began time.Time
	done  map[string][]time.Duration // by kind, from the beginning, in this order
	over  chan struct{}              // closed when none is left
}

// A queueWorker is one server, with a Locker of its own unless it is bare asynq.
type queueWorker struct {
	server *asynq.Server
	serve  asynq.Handler
	locker *core.Locker
	taken  atomic.Int64 // deliveries
}

func newFleet(addr, queue string) *fleet {
	return &fleet{
		addr: addr, queue: queue, client: asynq.NewClient(asynq.RedisClientOpt{Addr: addr}),
		left: map[string]string{}, done: map[string][]time.Duration{}, over: make(chan struct{}),
	}
}

// add makes a server, which takes its leases from the nodes at locks, with queuelock's defaults; it is bare asynq if
// there are none.
func (f *fleet) add(concurrency int, locks []string, handler asynq.Handler, opts ...queuelock.Option) error {
	w := &queueWorker{}
	f.workers = append(f.workers, w)
	cfg := asynq.Config{Concurrency: concurrency, Queues: map[string]int{f.queue: 1}, LogLevel: asynq.FatalLevel}
	if len(locks) > 0 {
		var err error
		if w.locker, err = openLocks(locks); err != nil {
			return err
		}
		ql, err := queuelock.New(w.locker, opts...)
		if err != nil {
			return err
		}
		if err := ql.Configure(&cfg); err != nil {
			return err
		}
		handler = ql.Middleware(handler)
	}
	w.server = asynq.NewServer(asynq.RedisClientOpt{Addr: f.addr}, cfg)
	w.serve = asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
		w.taken.Add(1)
		err := handler.ProcessTask(ctx, t)
		if id, _ := asynq.GetTaskID(ctx); err == nil {
			f.completed(id)
		}
		return err
	})
	return nil
}

func (f *fleet) enqueue(ctx context.Context, b batch) error {
	for i := range b.tasks {
		p := payload{Key: b.key, Lasts: b.lasts}
		if p.Key == "" {
			p.Key = fmt.Sprintf("%s %d", b.kind, i)
		}
		data, err := json.Marshal(p)
		if err != nil {
			return err
		}
		info, err := f.client.EnqueueContext(ctx, asynq.NewTask(b.kind, data), asynq.Queue(f.queue))
		if err != nil {
			return err
		}
		f.mu.Lock()
		f.left[info.ID] = b.kind
		f.mu.Unlock()
	}
	return nil
}

// completed is called when a delivery of a task returned nil.
func (f *fleet) completed(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	kind, ok := f.left[id]
	if !ok {
		return // its second delivery
	}
	delete(f.left, id)
	f.done[kind] = append(f.done[kind], time.Since(f.began))
	if len(f.left) == 0 {
		close(f.over)
	}
}

// start has all servers begin.
func (f *fleet) start() error {
	f.mu.Lock()
	f.began = time.Now()
	f.mu.Unlock()
	for _, w := range f.workers {
		if err := w.server.Start(w.serve); err != nil {
			return err
		}
	}
	return nil
}

// await returns when all is done, or the time is up.
func (f *fleet) await(ctx context.Context, limit time.Duration) error {
	select {
	case <-f.over:
	case <-time.After(limit):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// close ends the servers, together, and then their Lockers.
func (f *fleet) close() error {
	var stopping sync.WaitGroup
	for _, w := range f.workers {
		stopping.Go(w.close)
	}
	stopping.Wait()
	return f.client.Close()
}

func (w *queueWorker) close() {
	if w.server != nil {
		w.server.Shutdown()
	}
	if w.locker != nil {
		ctx, cancel := context.WithTimeout(context.Background(), closeWithin)
		defer cancel()
		_ = w.locker.Close(ctx) // fails where its nodes are out of reach
	}
}

const closeWithin = 5 * time.Second

// openLocks returns a Locker that logs nothing.
func openLocks(addrs []string) (*core.Locker, error) {
	urls := slices.Clone(addrs)
	for i, addr := range addrs {
		urls[i] = "redis://" + addr
	}
	return core.Open(urls, core.WithLogger(slog.New(slog.DiscardHandler)))
}
