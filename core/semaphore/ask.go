package semaphore

import (
	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/internal/slot"
)

// An answer is the result of asking for a slot.
type answer struct {
	grant          // its lease is nil if the slot was not granted, or was given back
	isTry    bool  // the slot was asked for without waiting
	err      error // why it was not granted
	isGuess  bool  // the wait ended before a quorum of nodes had answered: err does not say how the slot is
	panicked any   // the panic of a method of the caller's context
}

// start asks for a slot on a goroutine, which sends the answer. The memory has recorded the call there.
func (c *search) start(i int, isTry bool) {
	if isTry {
		c.trying++
	} else {
		c.waiting++
	}

	started := c.op.Go(func() {
		a := answer{isTry: isTry}
		defer func() {
			a.panicked = recover()
			c.answers <- a
		}()
		a = c.ask(i, isTry)
	})
	if !started {
		c.memory.Leave(c.key, i, false)
		closed := &core.OpError{Op: core.OpAcquire, Key: c.key, Err: core.ErrClosed}
		c.answers <- answer{isTry: isTry, err: closed}
	}
}

// ask asks for a slot in which the memory has recorded the call. Unless the result has a lease, the call has left the
// slot. Several goroutines call it at once.
func (c *search) ask(i int, isTry bool) answer {
	keepsSlot, isSecond := false, false
	defer func() {
		if !keepsSlot {
			c.memory.Leave(c.key, i, isSecond)
		}
	}()

	// Acquire takes no longer than the wait of the call, and a round of requests.
	lease, known, err := c.op.Acquire(c.waitCtx, slot.Name(c.key, i), isTry)
	if err != nil {
		return answer{isTry: isTry, err: err, isGuess: !known}
	}

	isFirst := c.isDecided.CompareAndSwap(false, true)
	if !isFirst {
		c.op.GiveBack(lease)
		isSecond = true
		return answer{isTry: isTry}
	}
	keepsSlot = true
	return answer{grant: grant{i, lease.(*core.Lease)}, isTry: isTry}
}
