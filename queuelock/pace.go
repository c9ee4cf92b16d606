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
	p.mean += (min(took, max(4*p.mean, 100*time.Millisecond)) - p.mean) / 8 // one that is far slower than the others tells little of them
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
	of    map[string]*line // by key
	total int
}

// A line is those who are away because of one key.
type line struct {
	until map[string]time.Time // by task
	first time.Time            // the earliest of these
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
	a.forget(key, now) // who is back on another server
	l := a.of[key]
	if l == nil {
		l = &line{until: map[string]time.Time{}}
	}
	before := inPlace + len(l.until) + 1 // the holder
	away := min(max(p.turns(before)-slack, 0), longestAway)
	if a.total >= maxAbsent {
		for other := range a.of {
			a.forget(other, now)
		}
	}
	if a.total >= maxAbsent {
		return away
	}
	if _, twice := l.until[task]; !twice { // as when two deliveries of a task meet
		a.total++
	}
	until := now.Add(away)
	if len(l.until) == 0 || until.Before(l.first) {
		l.first = until
	}
	a.of[key], l.until[task] = l, until
	return away
}

// returned notes that a task with these keys is back, the first of which names it.
func (a *absent) returned(keys []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, key := range keys {
		if l := a.of[key]; l != nil {
			a.drop(key, l, keys[0])
		}
	}
}

// forget drops those that are back by now.
func (a *absent) forget(key string, now time.Time) {
	l := a.of[key]
	if l == nil || !now.After(l.first) {
		return
	}
	l.first = now.Add(longestAway)
	for task, until := range l.until {
		if now.After(until) {
			a.drop(key, l, task)
		} else if until.Before(l.first) {
			l.first = until
		}
	}
}

func (a *absent) drop(key string, l *line, task string) {
	if _, away := l.until[task]; !away {
		return
	}
	delete(l.until, task)
	if a.total--; len(l.until) == 0 {
		delete(a.of, key)
	}
}
