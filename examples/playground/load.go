package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/lockkit/lockkit/examples/internal/stage"
)

// A load is the clients of the service: a few all the time, and more when somebody wants a burst.
type load struct {
	p        *playground
	client   *http.Client
	requests chan string // paths
	tasks    chan struct{}
	all      sync.WaitGroup
}

const (
	mostBurst   = 2000 // requests, or tasks, that are under way at a time
	spare       = 100  // requests for which there is room besides bursts
	clientCount = 24
)

func newLoad(p *playground) *load {
	return &load{p: p, requests: make(chan string, 2*mostBurst+spare), tasks: make(chan struct{}, mostBurst+spare),
		client: &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: clientCount}}}
}

func startLoad(p *playground) *load {
	l := newLoad(p)
	for range clientCount {
		l.all.Go(func() { l.send(p.ctx) })
	}
	l.all.Go(func() { l.enqueue(p.ctx) })
	l.all.Go(func() { l.always(p.ctx) })
	return l
}

func (l *load) wait() {
	l.all.Wait()
	l.client.CloseIdleConnections()
}

// always is what there is besides bursts.
func (l *load) always(ctx context.Context) {
	for i := 0; stage.Sleep(ctx, 500*time.Millisecond) == nil; i++ {
		l.offer(i % 3)
		if i%2 == 0 {
			select {
			case l.tasks <- struct{}{}:
			default: // there is enough to do
			}
		}
	}
}

// offer sends two updates of a counter, one under a lock and one without, if there is room for them.
func (l *load) offer(id int) bool {
	if len(l.requests) > cap(l.requests)-2 {
		return false
	}
	l.requests <- fmt.Sprintf("/counter/%d", id)
	l.requests <- fmt.Sprintf("/naive/%d", id)
	return true
}

// burst adds requests, as many under a lock as without, or tasks.
func (l *load) burst(requests, tasks int) error {
	if requests+tasks < 1 || requests+tasks > mostBurst {
		return fmt.Errorf("%w: a burst of %d; 1 to %d", errMalformed, requests+tasks, mostBurst)
	}
	if len(l.requests)+2*requests > cap(l.requests)-spare || len(l.tasks)+tasks > cap(l.tasks) {
		return refusal("the last burst is not over")
	}
	text := fmt.Sprintf("%d requests", requests)
	if tasks > 0 {
		text = fmt.Sprintf("%d tasks", tasks)
	}
	l.p.tell(Event{Kind: isBurst, Text: text})
	for range requests {
		l.offer(0)
	}
	for range tasks {
		select {
		case l.tasks <- struct{}{}:
		default: // somebody was quicker
		}
	}
	return nil
}

// send is one client.
func (l *load) send(ctx context.Context) {
	for i := rand.IntN(len(replicaNames)); ; i++ {
		var path string
		select {
		case path = <-l.requests:
		case <-ctx.Done():
			return
		}
		if addr := l.p.serving(i); addr != "" {
			l.put(ctx, "http://"+addr+path)
		} else if stage.Sleep(ctx, 100*time.Millisecond) != nil {
			return
		}
	}
}

// put does not look at the answer: what came of the update the store knows, and that some are refused when nodes are in
// trouble is no news.
func (l *load) put(ctx context.Context, url string) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, url, nil)
	if err != nil {
		return
	}
	res, err := l.client.Do(req)
	if err != nil {
		return
	}
	io.Copy(io.Discard, res.Body)
	res.Body.Close()
}

// serving returns where a replica serves that is up, another one for each i: "" if there is none.
func (p *playground) serving(i int) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	for n := range replicaNames {
		if x := p.replicas[replicaNames[(i+n)%len(replicaNames)]]; x != nil && x.is == up && x.ready && !x.asked {
			return x.addr
		}
	}
	return ""
}

func (l *load) enqueue(ctx context.Context) {
	for i := 0; ; i++ {
		select {
		case <-l.tasks:
		case <-ctx.Done():
			return
		}
		// Before, because the task may be done before the answer is here, or without it.
		l.p.mu.Lock()
		l.p.tally.Tasks++
		l.p.mu.Unlock()
		if err := l.p.queue.enqueue(ctx, fmt.Sprint(i%5)); err != nil && !errors.Is(err, context.Canceled) {
			l.p.tell(Event{Kind: isError, Text: "enqueue: " + err.Error()})
		}
	}
}
