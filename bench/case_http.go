package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/httplock"
)

const (
	httpRounds   = 60
	httpRequests = 10 // in a slice

	lockkitHTTP = "lockkit/httplock"
	goalRequest = 60 * time.Microsecond
)

// An answer is what a handler sends, in parts that it flushes after work of their own if there are several.
type answer struct {
	name  string
	parts int
	bytes int // of each
	work  time.Duration
}

var httpAnswers = []answer{
	{"1 kB", 1, 1000, 0},
	{"1 MiB", 1, 1 << 20, 0},
	{"a stream of eight times 128 KiB", 8, 128 << 10, time.Millisecond},
}

func (a answer) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	part := bytes.Repeat([]byte("x"), a.bytes)
	for range a.parts {
		for began := time.Now(); time.Since(began) < a.work; { // a sleep would be longer
		}
		_, _ = w.Write(part) // the client counts
		if a.parts > 1 {
			w.(http.Flusher).Flush()
		}
	}
}

// An httpEntrant is a server with a handler, and what its client saw.
type httpEntrant struct {
	name   string
	server *httptest.Server
	end    func(context.Context) error
	once   bool // requests have an Idempotency-Key

	first, last, cpu []float64 // per request of a round, in ns
}

// httpCost measures when a client has an answer.
func httpCost(ctx context.Context, _ config) ([]section, error) {
	s := section{
		title: "What a request costs",
		text: fmt.Sprintf(`When a client has the first byte of an answer and the last, one request after the other over HTTP/1.1 on loopback, each for a key
that nobody holds. Core's lease: a handler that acquires a lease before its answer and releases it after. Peers take turns, %d
rounds of %d requests. All are of each peer's best round, since what runs beside only slows; "more than bare" is to the last byte. CPU is that of this process for a request, client and server. An answer that is kept back is sent when the leases are settled, so its
first byte comes with its last. The stream is flushed eight times, after work of a millisecond each; with an Idempotency-Key it
is kept back as well.`, httpRounds, httpRequests),
	}
	err := onNodes(4, 0, func(on *nodes) error {
		for _, a := range httpAnswers {
			t, g, err := a.measure(ctx, on.addrs())
			if err != nil {
				return err
			}
			if s.add(a.name, t); a.name == httpAnswers[0].name {
				s.goals = append(s.goals, g)
			}
		}
		return nil
	})
	return []section{s}, err
}

// measure measures an answer: bare, with a lease of core's, with httplock, and with its Idempotency-Key, on one node and three.
func (a answer) measure(ctx context.Context, addrs []string) (*table, *goal, error) {
	es := []*httpEntrant{{name: "bare net/http", server: httptest.NewServer(a), end: func(context.Context) error { return nil }}}
	defer func() {
		for _, e := range es {
			e.server.Close()
			_ = e.end(ctx) // measured by now
		}
	}()
	for _, nodes := range [][]string{addrs[:1], addrs[1:]} {
		if err := provision(ctx, nodes); err != nil {
			return nil, nil, err
		}
		of, err := a.entrants(nodes)
		es = append(es, of...)
		if err != nil {
			return nil, nil, err
		}
	}
	for round := range httpRounds + 1 { // the first warms up
		for i := range es {
			if err := es[(i+round)%len(es)].slice(round); err != nil { // nobody is always first
				return nil, nil, err
			}
		}
	}
	t := &table{head: []string{"peer", "first byte", "last byte", "more than bare", "CPU"}}
	micros := func(v float64) string { return fmt.Sprintf("%.0f µs", v/1e3) }
	for _, e := range es {
		last := slices.Min(e.last)
		t.add(e.name, micros(slices.Min(e.first)), micros(last), micros(last-slices.Min(es[0].last)), micros(slices.Min(e.cpu)))
	}
	own := slices.Min(es[2].cpu) - slices.Min(es[1].cpu)
	g := &goal{what: "CPU of an answer of " + a.name + ", " + es[2].name + ": more than core's lease", want: "≤ " + short(goalRequest)}
	g.add(lockkitHTTP, micros(own), own <= float64(goalRequest))
	return t, g, nil
}

// entrants lock on nodes.
func (a answer) entrants(nodes []string) ([]*httpEntrant, error) {
	on := fmt.Sprintf(", %d nodes", len(nodes))
	if len(nodes) == 1 {
		on = ", 1 node"
	}
	var es []*httpEntrant
	add := func(name string, once bool, handler func(*core.Locker) (http.Handler, func(context.Context) error, error)) error {
		locker, err := openLocks(nodes)
		if err != nil {
			return err
		}
		h, end, err := handler(locker)
		if err != nil {
			return errors.Join(err, locker.Close(context.Background()))
		}
		mux := http.NewServeMux()
		mux.Handle("PUT /orders/{id}", h)
		es = append(es, &httpEntrant{name: name + on, once: once, server: httptest.NewServer(mux), end: func(ctx context.Context) error {
			return errors.Join(end(ctx), locker.Close(ctx))
		}})
		return nil
	}
	lease := func(l *core.Locker) (http.Handler, func(context.Context) error, error) {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := l.Do(r.Context(), "order", func(context.Context) error { a.ServeHTTP(w, r); return nil }); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
			}
		}), func(context.Context) error { return nil }, nil
	}
	lock := func(l *core.Locker) (http.Handler, func(context.Context) error, error) {
		m, err := httplock.New(l, "bench", httplock.ByParam("id"), httplock.WithIdempotency(false, httplock.NoSender))
		if err != nil {
			return nil, nil, err
		}
		return m.LockHandler(a), m.Close, nil
	}
	err := errors.Join(add("core's lease", false, lease), add(lockkitHTTP, false, lock), add(lockkitHTTP+" with an Idempotency-Key", true, lock))
	return es, err
}

// slice sends the requests of a round.
func (e *httpEntrant) slice(round int) error {
	var first, last time.Duration
	cpu := clientCPU()
	for i := range httpRequests {
		req, err := http.NewRequest("PUT", e.server.URL+"/orders/1", nil)
		if err != nil {
			return err
		}
		if e.once {
			req.Header.Set("Idempotency-Key", fmt.Sprintf("%d-%d-%d", round, i, time.Now().UnixNano()))
		}
		began := time.Now()
		res, err := e.server.Client().Do(req)
		if err != nil {
			return fmt.Errorf("%s: %w", e.name, err)
		}
		_, err = io.ReadFull(res.Body, make([]byte, 1))
		first += time.Since(began)
		_, rest := io.Copy(io.Discard, res.Body)
		last += time.Since(began)
		if err := errors.Join(err, rest, res.Body.Close()); err != nil || res.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s: %w", e.name, res.Status, err)
		}
	}
	cpu = clientCPU() - cpu
	if round > 0 {
		e.first = append(e.first, float64(first)/httpRequests)
		e.last = append(e.last, float64(last)/httpRequests)
		e.cpu = append(e.cpu, float64(cpu)/httpRequests)
	}
	return nil
}
