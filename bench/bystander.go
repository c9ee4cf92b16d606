package main

import "time"

// stoodText says what a bystander tells.
const stoodText = `Stood still: for how long a bystander that looks at the clock every millisecond could not, at most; what takes
as long may be the machine's.`

// A bystander does nothing but look at the clock every millisecond. What stops it for longer stops the others, too: it is
// the machine, not what is measured.
type bystander struct {
	stop    chan struct{}
	longest chan time.Duration
}

func startBystander() bystander {
	b := bystander{make(chan struct{}), make(chan time.Duration, 1)}
	go b.watch(clock)
	return b
}

func (b bystander) watch(clock func() time.Duration) {
	const every = time.Millisecond
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	longest := time.Duration(0)
	for last := clock(); ; {
		select {
		case <-b.stop:
			b.longest <- longest
			return
		case <-ticker.C:
			now := clock()
			longest = max(longest, now-last-every)
			last = now
		}
	}
}

// end returns for how long the machine stood still at most.
func (b bystander) end() time.Duration {
	close(b.stop)
	return <-b.longest
}
