package queuelock

import (
	"sync"
	"time"
)

// outagePatience is how long a task waits for locks that are out of reach. A server that cannot reach them keeps its workers
// waiting, and so leaves the tasks to those that can: it takes as many as it has workers in that time.
const outagePatience = 5 * time.Second

// An outage is what a server gave back because the locks were out of reach.
type outage struct {
	mu    sync.Mutex
	given map[string]bounce // by the key of the identity
}

// A bounce is a task that was given back, maybe several times.
type bounce struct {
	times int
	last  time.Time
}

// patience returns how long a task waits. One that comes straight back has met no server that took it: those that could run
// it have nothing else to do, and were only slower to fetch it. So it is given back soon, though less soon with time, in case
// that there is none.
func (o *outage) patience(task string) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	now, patience := time.Now(), outagePatience
	b := o.given[task]
	if b.times > 0 && now.Sub(b.last) < outagePatience {
		patience = outagePatience / 32 << min(b.times/4, 3)
	} else {
		b.times = 0
	}
	if len(o.given) >= 1000 {
		clear(o.given)
	}
	o.given[task] = bounce{b.times + 1, now.Add(patience)}
	return patience
}
