package main

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// The result is the longest time for which the machine stood still between two looks of the bystander.
func TestBystander(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var stood atomic.Int64 // how long the machine has stood still so far
		b := bystander{make(chan struct{}), make(chan time.Duration, 1)}
		go b.watch(func() time.Duration { return time.Since(began) + time.Duration(stood.Load()) })
		for _, d := range []time.Duration{3 * time.Millisecond, 30 * time.Millisecond, 0, 20 * time.Millisecond} {
			stood.Add(int64(d))
			time.Sleep(5 * time.Millisecond)
			synctest.Wait()
		}
		if longest := b.end(); longest != 30*time.Millisecond {
			t.Errorf("stood still for %v, want 30ms", longest)
		}
	})
}
