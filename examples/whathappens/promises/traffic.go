package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/examples/internal/stage"
	"github.com/lockkit/lockkit/queuelock"
)

// A client sends requests to the processes, and says what it was answered.
type client struct {
	world  *world
	v1, v2 *http.Client
	tasks  *asynq.Client
}

func newClient(w *world) *client {
	v1 := &http.Transport{DisableKeepAlives: true} // a retry of a connection that has gone would be counted in
	v2 := &http.Transport{DisableKeepAlives: true, Protocols: new(http.Protocols)}
	v2.Protocols.SetUnencryptedHTTP2(true)
	const limit = 2 * time.Minute
	return &client{w, &http.Client{Transport: v1, Timeout: limit}, &http.Client{Transport: v2, Timeout: limit}, asynq.NewClient(asynq.RedisClientOpt{Addr: w.queue.Addr()})}
}

// A call is an HTTP request.
type call struct {
	op, to, method, path string
	key                  string // Idempotency-Key
	body, host           string
	v2                   bool
}

// do returns when the response is read, and records it.
func (c *client) do(ctx context.Context, of call) event {
	began := time.Now()
	e := event{Kind: isReply, Op: of.op}
	addr := c.world.addr(of.to)
	req, err := http.NewRequestWithContext(ctx, of.method, "http://"+addr+of.path, bytes.NewBufferString(of.body))
	if err == nil && addr != "" {
		req.Host = of.host
		if of.key != "" {
			req.Header.Set("Idempotency-Key", `"`+of.key+`"`)
		}
		e.Status, e.Text, e.Err = c.answer(req, of.v2)
	} else {
		e.Err = "no address"
	}
	e.Took = time.Since(began)
	c.world.add(e)
	return e
}

func (c *client) answer(req *http.Request, v2 bool) (status int, text, failed string) {
	by := c.v1
	if v2 {
		by = c.v2
	}
	res, err := by.Do(req)
	if err != nil {
		return 0, "", err.Error()
	}
	defer res.Body.Close()
	for _, name := range []string{"Retry-After", "Idempotent-Replayed"} {
		if v := res.Header.Get(name); v != "" {
			text += name + ": " + v + "\n"
		}
	}
	body, err := io.ReadAll(res.Body)
	text += string(body[:min(len(body), 400)])
	if err != nil {
		return res.StatusCode, text, err.Error()
	}
	return res.StatusCode, text, ""
}

// run sends requests and tasks to all processes until ctx ends. The cron job "report" is the service's own.
func (c *client) run(ctx context.Context, random *rand.Rand) {
	var work sync.WaitGroup
	defer work.Wait()
	for n := 0; stage.Sleep(ctx, 250*time.Millisecond) == nil; n++ {
		to, order := names[random.IntN(len(names))], random.IntN(4)
		work.Go(func() {
			c.do(ctx, call{op: traffic, to: to, method: http.MethodPut, path: fmt.Sprintf("/orders/traffic-%d?op=traffic&work=100ms", order)})
		})
		if n%4 != 0 {
			continue
		}
		work.Go(func() {
			path := fmt.Sprintf("/orders/traffic-%d/charges?op=traffic&task=1", order)
			c.do(ctx, call{op: traffic, to: to, method: http.MethodPost, path: path, key: fmt.Sprint("traffic-", n)})
		})
	}
}

// traffic is the name of what belongs to no scene.
const traffic = "traffic"

// enqueue enqueues a task, under an id that it returns.
func (c *client) enqueue(of charge, opts ...asynq.Option) (id string, err error) {
	payload, err := json.Marshal(of)
	if err != nil {
		return "", err
	}
	info, err := c.tasks.Enqueue(asynq.NewTask("charge", payload), append([]asynq.Option{queuelock.ID("promises", of.Op, of.Order)}, opts...)...)
	if err != nil {
		return "", err
	}
	return info.ID, nil
}

// follow says what asynq shows of a task, whenever that changes, until ctx ends.
func (c *client) follow(ctx context.Context, op, id string) {
	inspector := asynq.NewInspector(asynq.RedisClientOpt{Addr: c.world.queue.Addr()})
	defer inspector.Close()
	last := event{}
	for stage.Sleep(ctx, 100*time.Millisecond) == nil {
		e := event{Kind: isTask, Op: op, Text: "gone"}
		if info, err := inspector.GetTaskInfo("default", id); err == nil {
			e.Text, e.Status, e.Reason, e.Tick = info.State.String(), info.Retried, info.LastErr, info.NextProcessAt
		}
		if e != last {
			last = e
			c.world.add(e)
		}
	}
}
