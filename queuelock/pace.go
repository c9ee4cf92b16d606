package queuelock

import (
	"slices"
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
	p.mean += (took - p.mean) / 8
	p.longest = max(took, p.longest-(p.longest-p.mean)/32)
}

// turns is how long that many tasks take. Before one has run here, it is for as long as that has been asked.
func (p *pace) turns(n int) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mean > 0 {
		return time.Duration(n) * min(p.mean, time.Minute)
	}
	if p.asked.IsZero() {
		p.asked = time.Now()
	}
	return time.Since(p.asked)
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
	back  map[string][]time.Time // when they come back, by key
	total int
}

// maxAbsent bounds how many are remembered; further ones come back sooner than their turn.
const maxAbsent = 10_000

// Who is given back is away for no longer than that, in case that those before it are faster than expected.
const longestAway = 10 * time.Minute

// await returns for how long a task is to be away whose key is held, and that inPlace others wait for in place: until
// about its turn, less what asynq may take longer to deliver it.
func (a *absent) await(key string, inPlace int, p *pace, slack time.Duration) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	a.forget(key, now)
	before := inPlace + len(a.back[key]) + 1 // the holder
	away := min(max(p.turns(before)-slack, 0), longestAway)
	if a.total < maxAbsent {
		a.back[key] = append(a.back[key], now.Add(away+slack/2))
		a.total++
	}
	if a.total >= maxAbsent {
		for other := range a.back {
			a.forget(other, now)
		}
	}
	return away
}

// forget drops those who are back.
func (a *absent) forget(key string, now time.Time) {
	n := len(a.back[key])
	still := slices.DeleteFunc(a.back[key], func(t time.Time) bool { return !t.After(now) })
	a.total -= n - len(still)
	if a.back[key] = still; len(still) == 0 {
		delete(a.back, key)
	}
}
