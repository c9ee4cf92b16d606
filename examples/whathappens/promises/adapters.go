package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/examples/internal/stage"
	"github.com/lockkit/lockkit/examples/whathappens/nemesis"
	"github.com/lockkit/lockkit/queuelock"
)

// startAdapters starts the service in a client of the nemesis, on the Locker of that client, and load for its server, its
// tasks and its job.
func startAdapters(c *nemesis.Client, l *core.Locker) (stop func(context.Context) error, err error) {
	s := &service{role: role{Name: c.Name, Queue: c.Queue}, teller: newTeller(c.Name, io.Discard), locker: l, client: nil, worker: c}
	if s.tasks, err = queuelock.New(l, queuelock.WithKey(queuelock.ByPayloadField("order"))); err != nil {
		return nil, err
	}
	if err := s.start(); err != nil {
		return nil, err
	}

	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); s.load(ctx, rand.New(rand.NewPCG(c.Seed, 1))) }()
	return func(ctx context.Context) error {
		cancel()
		<-ended
		return s.shutdown(ctx)
	}, nil
}

// loadPeriod is how often a process sends a request to itself.
const loadPeriod = 400 * time.Millisecond

// load sends requests to this process until ctx ends: updates of orders, and charges, which enqueue tasks. All processes
// use the same orders.
func (s *service) load(ctx context.Context, random *rand.Rand) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
	for n := 0; stage.Sleep(ctx, loadPeriod) == nil; n++ {
		url := fmt.Sprintf("http://%s/orders/order-%d", s.addr, random.IntN(2))
		method, key := http.MethodPut, ""
		if n%3 == 0 {
			method, key, url = http.MethodPost, fmt.Sprintf("%q", fmt.Sprint(s.Name, "-", n)), url+"/charges"
		}
		req, err := http.NewRequestWithContext(ctx, method, url+"?op=http&work=60ms&task=1", bytes.NewReader(nil))
		if err != nil {
			panic(err) // the URL is malformed
		}
		req.Header.Set("Idempotency-Key", key)
		res, err := client.Do(req)
		if err == nil {
			_, err = io.Copy(io.Discard, res.Body)
			err = errors.Join(err, res.Body.Close())
		}
		_ = err // of a fault: the referee judges the work
	}
}
