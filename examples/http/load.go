package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	clients  = 30
	requests = 30 // of each client
	orders   = 4
)

// A result is what clients were answered, and what the store then had.
type result struct {
	statuses map[int]int
	waits    []time.Duration // of those answered with 200
	stored   int
}

func (r result) ok() int   { return r.statuses[http.StatusOK] }
func (r result) lost() int { return r.ok() - r.stored }

// add counts an answer.
func (r *result) add(status int, waited time.Duration) {
	r.statuses[status]++
	if status == http.StatusOK {
		r.waits = append(r.waits, waited)
	}
}

// wait is a quantile of the time from a request's arrival to its handler.
func (r result) wait(quantile float64) time.Duration {
	if len(r.waits) == 0 {
		return 0
	}
	return r.waits[int(quantile*float64(len(r.waits)-1))].Round(100 * time.Microsecond)
}

// load has all clients send their requests at once, to one replica after another.
func load(ctx context.Context, store *store, replicas []string, route string) (result, error) {
	r := result{statuses: map[int]int{}}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients}}
	defer client.CloseIdleConnections()
	var (
		mu  sync.Mutex
		all sync.WaitGroup
	)
	failures := make([]error, clients)
	for c := range clients {
		all.Go(func() {
			for i := 0; i < requests && failures[c] == nil; i++ {
				url := fmt.Sprintf("%s%s/%d", replicas[(c+i)%len(replicas)], route, orderFor(c, i))
				status, waited, err := send(ctx, client, url)
				failures[c] = err
				mu.Lock()
				r.add(status, waited)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	slices.Sort(r.waits)
	r.stored = store.total()
	return r, cmp.Or(failures...)
}

// orderFor is what a client's request is for: every other one is for the same order, which all clients want.
func orderFor(client, request int) int {
	if request%2 == 0 {
		return 1
	}
	return 2 + (client+request)%(orders-1)
}

func send(ctx context.Context, client *http.Client, url string) (status int, waited time.Duration, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, url, strings.NewReader("one more"))
	if err != nil {
		return 0, 0, err
	}
	res, err := client.Do(req)
	if err != nil {
		return 0, 0, err
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return 0, 0, err
	}
	us, _ := strconv.Atoi(res.Header.Get(waitedHeader)) // not there where the handler did not run
	return res.StatusCode, time.Duration(us) * time.Microsecond, nil
}

// print compares two results.
func print(without, with result) {
	row := func(title string, cell func(result) any) {
		fmt.Printf("%-34s%14v%14v\n", title, cell(without), cell(with))
	}
	fmt.Printf("%-34s%14s%14s\n", "", "without", "with httplock")
	all := maps.Clone(without.statuses)
	maps.Copy(all, with.statuses)
	for _, status := range slices.Sorted(maps.Keys(all)) {
		row(fmt.Sprintf("answered %d %s", status, http.StatusText(status)), func(r result) any { return r.statuses[status] })
	}
	row("updates in the store", func(r result) any { return r.stored })
	row("updates lost", func(r result) any { return r.lost() })
	row("wait, p50", func(r result) any { return r.wait(0.50) })
	row("wait, p99", func(r result) any { return r.wait(0.99) })
}
