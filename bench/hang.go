package main

import (
	"errors"
	"sync"
	"time"
)

const (
	// patience is how long calls under way may take when the time is over.
	patience = time.Minute
	// grace is how long they may take when they have been cancelled, too.
	grace = 5 * time.Second
)

// errHung is what a peer fails with whose calls do not return. Only lockkit may not: there it ends the run.
var errHung = errors.New("hung")

// mayHang reports whether err is that a peer other than lockkit hung: that is told beside its figures, and nothing else.
func mayHang(p peer, err error) bool { return errors.Is(err, errHung) && !isLockkit(p.name) }

// returned reports whether what runs has returned within so long.
func returned(running *sync.WaitGroup, within time.Duration) bool {
	over := make(chan struct{})
	go func() {
		running.Wait()
		close(over)
	}()
	select {
	case <-over:
		return true
	case <-time.After(within):
		return false
	}
}
