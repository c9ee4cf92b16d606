package semaphore

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/internal/slot"
)

const (
	// A call waits in the queues of narrowest slots, later of twice as many, and of widest at most. It asks each of them
	// about once a second, even if nothing happens.
	narrowest, widest = 2, 8

	// The pause before a call looks further grows from the first to the second.
	firstPause, longestPause = 50 * time.Millisecond, time.Second

	// maxBatch limits how many slots a call tries at once.
	maxBatch = 32
)

// A search is a call in progress. It asks for slots until one is granted. Only the goroutine of the call uses it, apart
// from the last fields.
//
// The first grant wins, and the other waits are cancelled. If another slot is granted all the same, the goroutine that
// asked for it gives it back.
type search struct {
	*Semaphore
	op  slot.Operation
	key string

	waitCtx context.Context    // ends the waits, but no lease
	cancel  context.CancelFunc // ends waitCtx

	first   int   // the slot that was tried first; -1 if none was
	asked   []int // the slots that the call waits for, or that have refused it for good
	looked  []int // other slots that it has tried since it waits
	width   int   // the number of queues that the call waits in, if there are as many slots
	waiting int   // waits in progress
	trying  int   // tries in progress
	failure failure
	granted grant // the slot that was granted, once its answer has come

	hasFailed bool // the call has waited in vain: a grant from now on is given back

	// The goroutines that ask use these fields.
	isDecided atomic.Bool // a grant goes to the caller, or the call has failed
	answers   chan answer // it has room for the answers of all goroutines
}

// A grant is a slot that was granted.
type grant struct {
	slot  int
	lease *core.Lease
}

// newSearch returns the search of an operation.
func newSearch(s *Semaphore, op slot.Operation, key string) *search {
	waitCtx, cancel := op.Until()
	return &search{
		Semaphore: s,
		op:        op,
		key:       key,
		waitCtx:   waitCtx,
		cancel:    cancel,
		first:     -1,
		width:     narrowest,
		answers:   make(chan answer, widest+maxBatch),
	}
}

// run returns the first slot that is granted, or the error of the call, and ends the waits that are left. If try is set,
// it does not wait.
func (c *search) run(try bool) (grant, error) {
	isOver := false
	defer func() {
		if !isOver {
			c.abandon()
		}
	}()

	granted, err := c.find(try)
	c.cancel() // calls methods of the caller's context, which may panic
	isOver = true
	return granted, err
}

// find looks for a slot as run does.
func (c *search) find(try bool) (grant, error) {
	// With one slot there is nothing to choose.
	if c.k == 1 && !try {
		return c.wait()
	}

	// A free slot costs one request to each node.
	c.first = c.memory.EnterFirst(c.key, c.k)
	a := c.ask(c.first, true)
	c.failure.add(a.err, a.isGuess, true)
	switch {
	case a.lease != nil:
		c.granted = a.grant
		return c.granted, nil
	case try:
		return c.tryOthers()
	case c.failure.ended != nil:
		return grant{}, c.failure.ofWait(c.key, c.k, c.waitCtx.Err() != nil)
	default:
		return c.wait()
	}
}

// tryOthers tries the other slots in batches, until one is granted, or each has refused the call.
func (c *search) tryOthers() (grant, error) {
	c.asked = append(c.asked, c.first)
	for size := narrowest; c.failure.isHeld() && len(c.asked) < c.k; size = min(2*size, maxBatch) {
		for range min(size, c.k-len(c.asked)) {
			i := c.memory.EnterAnother(c.key, c.k, c.asked)
			c.asked = append(c.asked, i)
			c.start(i, true)
		}

		// Grants besides the first are given back before the call returns, so that the next call does not meet them.
		for c.trying > 0 {
			c.receive()
		}
		if c.granted.lease != nil {
			return c.granted, nil
		}
	}
	return grant{}, c.failure.ofTry(c.key, c.k)
}

// wait waits in the queues of slots, of more as time passes, until one is granted.
func (c *search) wait() (grant, error) {
	for range c.width {
		c.waitForAnother()
	}

	pause := firstPause
	timer := time.NewTimer(pause)
	defer timer.Stop()

	for c.waiting > 0 && !c.failure.isDone() {
		select {
		case <-timer.C:
			c.lookFurther()
			pause = min(2*pause, longestPause)
			timer.Reset(pause)

		case a := <-c.answers:
			c.record(a)
			if c.granted.lease != nil {
				return c.granted, nil
			}

			if c.isRefusedForGood(a) {
				c.waitForAnother()
			}
		}
	}

	// A slot may have been granted at the same moment.
	limitIsOver := c.waitCtx.Err() != nil // may panic, so it comes first
	c.hasFailed = c.isDecided.CompareAndSwap(false, true)
	if c.hasFailed {
		return grant{}, c.failure.ofWait(c.key, c.k, limitIsOver)
	}
	for c.granted.lease == nil {
		c.receive()
	}
	return c.granted, nil
}

// waitForAnother makes the call wait in the queue of one more slot, if there is one. It leaves out the slot that was
// tried first as long as there are others.
func (c *search) waitForAnother() {
	not := c.asked
	left := c.k - len(not)
	hasOthers := left > 1 && c.first >= 0 && !slices.Contains(not, c.first)
	switch {
	case left == 0:
		return
	case hasOthers: // the slot that was tried first
		not = append(slices.Clone(not), c.first)
	}

	i := c.memory.EnterAnother(c.key, c.k, not)
	c.asked = append(c.asked, i)
	c.start(i, false)
}

// lookFurther makes the call wait in twice as many queues. Once it waits in enough of them, it tries other slots instead,
// in turn: no node notifies the call of a free slot for which it does not wait.
func (c *search) lookFurther() {
	if c.width < widest {
		for range c.width {
			c.waitForAnother()
		}
		c.width *= 2
		return
	}

	if c.trying > 0 { // the nodes have not answered the tries before
		return
	}

	for range widest {
		not := slices.Concat(c.asked, c.looked)
		if len(not) == c.k {
			c.looked = nil // they are tried again
			return
		}

		i := c.memory.EnterAnother(c.key, c.k, not)
		c.looked = append(c.looked, i)
		c.start(i, true)
	}
}

// receive waits for the next answer, and records it.
func (c *search) receive() answer {
	a := <-c.answers
	c.record(a)
	return a
}

// record records an answer.
func (c *search) record(a answer) {
	if a.isTry {
		c.trying--
	} else {
		c.waiting--
	}

	if a.lease != nil {
		c.granted = a.grant
	}

	if a.panicked != nil {
		panic(a.panicked)
	}
	c.failure.add(a.err, a.isGuess, a.isTry || c.isRefusedForGood(a))
}

// isRefusedForGood reports whether a slot has refused to let the call wait, because its cooldown lasts longer than the
// call may wait. Others may not.
func (c *search) isRefusedForGood(a answer) bool {
	return !a.isTry && core.ClassOf(a.err) == core.ClassHeld && c.waitCtx.Err() == nil
}

// abandon ends a call in which a method of the caller's context has panicked. Nobody gets a slot that was granted at the
// same time, so it is given back.
func (c *search) abandon() {
	defer c.cancel()

	isUndecided := c.isDecided.CompareAndSwap(false, true)
	if isUndecided || c.hasFailed {
		return
	}
	for c.granted.lease == nil {
		c.granted = (<-c.answers).grant
	}

	defer c.memory.Leave(c.key, c.granted.slot, true)
	c.op.GiveBack(c.granted.lease)
}
