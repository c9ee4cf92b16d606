package main

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestLoadCountsWhatReturnsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := [3]int{}
		s, err := load{
			goroutines: 3, warm: 45 * time.Millisecond, measure: 100 * time.Millisecond,
			call: func(_ context.Context, worker int) (time.Duration, error) {
				calls[worker]++
				time.Sleep(10 * time.Millisecond)
				if worker == 2 {
					return 0, errors.New("refused")
				}
				return 4 * time.Millisecond, nil
			},
		}.run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		// Calls return at 50, 60 … 140 ms. Calls that return before 45 or after 145 ms count only in all.
		if s.calls != 2*10 || s.all != calls[0]+calls[1] || s.perSecond() != 200 {
			t.Errorf("%d calls in %v, %d of all %d", s.calls, s.elapsed, s.all, calls)
		}
		if s.failures != calls[2] || s.failure == nil {
			t.Errorf("%d failures of %d, the first is %v", s.failures, calls[2], s.failure)
		}
		if s.whole.total != 2*11 || bucketOf(10*time.Millisecond) != bucketOf(s.whole.quantile(1)) || bucketOf(4*time.Millisecond) != bucketOf(s.locked.quantile(0)) {
			t.Errorf("%d timed, in %v, locked in %v", s.whole.total, s.whole.quantile(1), s.locked.quantile(0))
		}
	})
}

// A slice goes on until each goroutine has made some calls, but only up to a limit.
func TestLoadWaitsForWaves(t *testing.T) {
	for took, want := range map[time.Duration]int{
		70 * time.Millisecond: 3, // the third is over within 5 times 50 ms
		99 * time.Millisecond: 2, // the third is not
	} {
		synctest.Test(t, func(t *testing.T) {
			s, err := load{
				goroutines: 4, warm: 40 * time.Millisecond, measure: 50 * time.Millisecond, waves: 3,
				call: func(context.Context, int) (time.Duration, error) { time.Sleep(took); return 0, nil },
			}.run(t.Context())
			if err != nil || s.calls != 4*want || s.all != 4*(1+want+1) {
				t.Errorf("calls of %v: %d of them in %v, want %d, and one wave before and after; %d in all, %v", took, s.calls, s.elapsed, 4*want, s.all, err)
			}
		})
	}
}

// Calls that are held up do not return before the time is over, and their durations are not counted.
func TestLoadOfCallsThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wake := make(chan struct{})
		s, err := load{
			goroutines: 2, measure: time.Second,
			call:    func(context.Context, int) (time.Duration, error) { <-wake; return 0, nil },
			stopped: func() error { close(wake); return nil },
		}.run(t.Context())
		if err != nil || s.calls != 0 || s.all != 2 || s.whole.total != 0 {
			t.Errorf("%d calls, %d in all, %d timed, %v", s.calls, s.all, s.whole.total, err)
		}
	})
}

func TestLoadOfCallsThatNeverReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wake := make(chan struct{})
		_, err := load{
			goroutines: 1, measure: time.Second,
			call: func(context.Context, int) (time.Duration, error) { <-wake; return 0, nil },
		}.run(t.Context())
		if err == nil {
			t.Error("no error")
		}
		close(wake)
	})
}
