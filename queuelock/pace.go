package queuelock

import (
	"sync"
	"time"
)

// A pace is for how long the tasks of a type keep their keys, as far as this process has seen.
type pace struct {
	mu            sync.Mutex
	mean, longest time.Duration // of late; 0 = none has run
	asked         time.Time     // first, before one had run
}

func (p *pace) note(took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mean == 0 {
		p.mean = took
	}
	p.mean += (min(took, max(4*p.mean, time.Second)) - p.mean) / 8 // one that is far slower than the others tells little of them
	p.longest = max(took, p.longest-(p.longest-p.mean)/32)
}

// turns is how long that many tasks take. Before one has run here, it is for as long as that has been asked, up to a
// minute.
func (p *pace) turns(n int) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mean > 0 {
		return time.Duration(n) * min(p.mean, time.Minute)
	}
	if p.asked.IsZero() {
		p.asked = time.Now()
	}
	return min(time.Since(p.asked), time.Minute)
}

// needs is for how long a task may run, going by those that have.
func (p *pace) needs() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.longest
}

// absent are the tasks of a server that were given back because their keys were held, and are not back yet: who is given
// back after them comes after them.
type absent struct {
	mu    sync.Mutex
	back  map[string]map[string]time.Time // until when they are, by key and task
	total int
}

// maxAbsent bounds how many are remembered; further ones come back sooner than their turn.
const maxAbsent = 10_000

// Who is given back is away for no longer than that, in case that those before it are faster than expected.
const longestAway = 10 * time.Minute

// send returns for how long a task is to be away whose key is held, and that inPlace others wait for in place: until
// about its turn, less what asynq may take longer to deliver it.
func (a *absent) send(key, task string, inPlace int, p *pace, slack time.Duration) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	a.forget(key, now)                       // who is back on another server
	before := inPlace + len(a.back[key]) + 1 // the holder
	away := min(max(p.turns(before)-slack, 0), longestAway)
	if a.total >= maxAbsent {
		for other := range a.back {
			a.forget(other, now)
		}
	}
	if a.total < maxAbsent {
		if a.back[key] == nil {
			a.back[key] = map[string]time.Time{}
		}
		if _, twice := a.back[key][task]; !twice { // as when two deliveries of a task meet
			a.total++
		}
		a.back[key][task] = now.Add(away)
	}
	return away
}

// returned notes that a task with these keys is back, the first of which names it.
func (a *absent) returned(keys []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, key := range keys {
		if _, away := a.back[key][keys[0]]; away {
			a.drop(key, keys[0])
		}
	}
}

func (a *absent) forget(key string, now time.Time) {
	for task, until := range a.back[key] {
		if now.After(until) {
			a.drop(key, task)
		}
	}
}

func (a *absent) drop(key, task string) {
	delete(a.back[key], task)
	if a.total--; len(a.back[key]) == 0 {
		delete(a.back, key)
	}
}
