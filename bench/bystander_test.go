package main

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// What counts is by how much the clock went on beyond a look of the bystander, the longest time.
func TestBystander(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var stood atomic.Int64 // the machine, so far
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
