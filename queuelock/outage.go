package queuelock

import (
	"maps"
	"sync"
	"time"
)

// outagePatience is how long a task waits in place for locks that are out of reach. A server that has lost sight of them
// keeps its workers waiting, and so leaves tasks to those that have not: in that time, it takes as many as it has workers.
const outagePatience = 5 * time.Second

// An outage is what a server has given back because the locks were out of reach.
type outage struct {
	mu    sync.Mutex
	given map[string]bounce // by task
}

// A bounce is a task that came back to the server that had given it back.
type bounce struct {
	times int
	at    time.Time // last
}

// patience is how long a task waits. One that is back at once has met no other task in the queue: a server that can run
// it has nothing else to do, and was only slower to fetch it. It is given back soon, though not as soon each time, in case
// that there is none.
func (o *outage) patience(task string) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	b := o.given[task]
	if b.times == 0 || time.Since(b.at) > outagePatience {
		return outagePatience
	}
	return min(outagePatience/32<<min(b.times, 5), outagePatience/4)
}

func (o *outage) givenBack(task string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	b, now := o.given[task], time.Now()
	if now.Sub(b.at) > 2*outagePatience {
		b.times = 0
	}
	remember(o.given, task, bounce{b.times + 1, now}, func(b bounce) bool { return now.Sub(b.at) > outagePatience })
}

// remember sets an entry of a map that is to have no more than maxAbsent of them: where it has, those that are over go first.
func remember[V any](in map[string]V, key string, v V, over func(V) bool) {
	if len(in) >= maxAbsent {
		maps.DeleteFunc(in, func(_ string, v V) bool { return over(v) })
	}
	if len(in) < maxAbsent {
		in[key] = v
	}
}
