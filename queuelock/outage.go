package queuelock

import (
	"sync"
	"time"
)

// outageWait is how long a task waits for lock nodes that are out of reach. A server that cannot reach them keeps its
// workers waiting, and so leaves the tasks to servers that can: in this time, it fetches as many tasks as it has
// workers.
const outageWait = 5 * time.Second

// maxBounces limits the tasks that an outage remembers. Beyond it, all are forgotten.
const maxBounces = 1000

// An outage remembers the tasks that a server gave back because the lock nodes were out of reach.
type outage struct {
	mu      sync.Mutex // guards bounces
	bounces map[string]bounce
}

// A bounce is a task that was given back, perhaps several times.
type bounce struct {
	count      int
	waitsUntil time.Time // the end of its last wait
}

// startWait records that a task waits, and returns the limit of its wait. The task is named by the key of its identity.
//
// A task that comes straight back was fetched by the same server again. A server that could run it may be idle, and
// only slower to fetch it, so the task is given back soon. The limit grows with the number of returns, in case that
// there is no such server.
func (o *outage) startWait(task string) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()

	now := time.Now()
	b := o.bounces[task]
	limit := outageWait
	if b.count > 0 && now.Sub(b.waitsUntil) < outageWait {
		limit = outageWait / 32 << min(b.count/4, 3)
	} else {
		b.count = 0
	}

	if len(o.bounces) >= maxBounces {
		clear(o.bounces)
	}
	o.bounces[task] = bounce{b.count + 1, now.Add(limit)}
	return limit
}
