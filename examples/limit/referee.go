package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// A referee is the API. It counts the calls in progress, by their arrival and by the end of its own work. A call goes on
// when its caller is killed.
type referee struct {
	mu       sync.Mutex // guards the fields below
	inside   int
	most     int
	byCaller map[string]int // calls that have ended
	all      chan struct{}  // closed when each replica has called
}

func newReferee() *referee {
	return &referee{byCaller: map[string]int{}, all: make(chan struct{})}
}

// ServeHTTP is a call to the API.
func (a *referee) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.begin()
	time.Sleep(callTime) //nolint:forbidigo // the work
	a.end(r.Header.Get("Caller"))
}

func (a *referee) begin() {
	a.mu.Lock()
	defer a.mu.Unlock()

	a.inside++
	a.most = max(a.most, a.inside)
}

func (a *referee) end(caller string) {
	a.mu.Lock()
	defer a.mu.Unlock()

	a.inside--
	a.byCaller[caller]++
	isNew := a.byCaller[caller] == 1
	if isNew && len(a.byCaller) == replicas {
		close(a.all)
	}
}

// untilEachHasCalled waits until each replica has called once.
func (a *referee) untilEachHasCalled(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute) // on a machine that compiles at the same time
	defer cancel()
	select {
	case <-a.all:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for the first calls of all replicas: %w", ctx.Err())
	}
}

// summary returns the counts as text.
func (a *referee) summary() string {
	a.mu.Lock()
	defer a.mu.Unlock()

	calls, least := 0, 0
	for _, n := range a.byCaller {
		calls += n
		if least == 0 || n < least {
			least = n
		}
	}
	return fmt.Sprintf("the API had %d calls, %d at a time at most; the least that a replica made is %d", calls, a.most, least)
}

// verdict returns an error that names each promise that was broken.
func (a *referee) verdict() error {
	a.mu.Lock()
	defer a.mu.Unlock()

	var errs []error
	if a.most > allowed {
		errs = append(errs, fmt.Errorf("the API had %d calls at a time, and allows %d", a.most, allowed))
	}
	if a.most < allowed {
		errs = append(errs, fmt.Errorf("the API never had more than %d calls at a time: %d were allowed", a.most, allowed))
	}
	if len(a.byCaller) < replicas {
		errs = append(errs, fmt.Errorf("%d of %d replicas were served", len(a.byCaller), replicas))
	}
	return errors.Join(errs...)
}
