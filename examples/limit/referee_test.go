package main

import (
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
)

// The referee's verdict depends on the calls that it had.
func TestReferee(t *testing.T) {
	for _, x := range []struct {
		atATime, callers int
		ok               bool
	}{{allowed, replicas, true}, {allowed + 1, replicas, false}, {1, replicas, false}, {allowed, replicas - 1, false}} {
		api := newReferee()
		for range x.atATime {
			api.begin()
		}
		for i := range x.atATime {
			api.end(strconv.Itoa(i))
		}
		for i := x.atATime; i < x.callers; i++ {
			api.begin()
			api.end(strconv.Itoa(i))
		}
		if err := api.verdict(); (err == nil) != x.ok {
			t.Errorf("%d at a time, by %d replicas: %v", x.atATime, x.callers, err)
		}
	}
}

// A call counts while it is served.
func TestRefereeCountsCalls(t *testing.T) {
	api := newReferee()
	var all sync.WaitGroup
	for i := range replicas {
		all.Go(func() {
			r := httptest.NewRequest("GET", "/", nil)
			r.Header.Set("Caller", strconv.Itoa(i))
			api.ServeHTTP(httptest.NewRecorder(), r)
		})
	}
	all.Wait()
	if err := api.untilEachHasCalled(t.Context()); err != nil || api.inside != 0 || api.most < 1 {
		t.Errorf("%v: %s, %d are left", err, api.summary(), api.inside)
	}
}
