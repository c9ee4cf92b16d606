package main

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockkit/lockkit/testutil/history"
)

// A register is what the lock protects. It refuses a write whose token is smaller than one it has seen, so
// that a holder who was asleep while its lease ended does no harm. In SQL:
//
//	UPDATE register SET value = $1, token = $2 WHERE token <= $2
type register struct {
	history *history.History

	mu     sync.Mutex
	value  int
	token  uint64
	first  uint64 // the first token accepted
	writes int
}

var errStale = errors.New("a write with a greater token came before")

func (r *register) read() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.value
}

func (r *register) write(token uint64, value int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	accepted := token >= r.token
	r.history.Wrote(key, token, time.Now(), accepted)
	if !accepted {
		return fmt.Errorf("write with token %s: %w", grouped(token), errStale)
	}
	if r.writes == 0 {
		r.first = token
	}
	r.value, r.token = value, token
	r.writes++
	return nil
}

// check replays the first write, which must be refused, and looks whether every write counted.
func (r *register) check(times *timeline) error {
	err := r.write(r.first, 0)
	if !errors.Is(err, errStale) {
		return fmt.Errorf("the register took a write with token %s after greater ones", grouped(r.first))
	}
	times.print("late", "refused", "%v", err)
	if r.value != r.writes {
		return fmt.Errorf("the register is at %d after %d writes", r.value, r.writes)
	}
	return nil
}
