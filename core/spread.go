package core

import (
	"context"
	"sync"
	"time"
)

// A spread brings a decided record to the nodes that have not confirmed it, in the background: what only a bare
// quorum holds is gone when one of them forgets.
type spread struct {
	a      *attempt
	rec    *nodeRecord
	ballot uint64
	since  time.Duration // when the completion was sent

	mu      sync.Mutex
	missing nodeSet // have not confirmed it
	unheard nodeSet // may still answer the completion itself
	on      bool    // the record is decided
	running bool
}

// hear takes what a node made of the completion, however late.
func (s *spread) hear(op OpKind, got reply) (v Verdict, slept bool) {
	s.a.mu.Lock()
	s.a.noteAnswer(op, got)
	s.a.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unheard &^= nodeSet(0).with(got.node)
	if got.verdict == VerdictGranted {
		s.missing &^= nodeSet(0).with(got.node)
	}
	s.start()
	return got.verdict, false
}

func (s *spread) sends(op OpKind, node int) bool { return s.a.sends(op, node) }
func (s *spread) isEnded() bool                  { return s.a.isEnded() }

// decided notes that a quorum holds the record.
func (s *spread) decided() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.on = true
	s.start()
}

// start goes on in the background once every node has been heard. Called with the lock.
func (s *spread) start() {
	if s.on && !s.running && s.unheard == 0 && s.missing != 0 {
		s.running = true
		s.a.e.spawn(s.run)
	}
}

// run offers the record to the nodes that lack it, at growing pauses, for a max TTL. When the Locker is being
// closed it tries once more. Later, whoever asks for the key repairs what is missing.
func (s *spread) run() {
	e, p := s.a.e, s.a.p
	rec := *s.rec
	for pause := p.nodeTimeout; ; pause *= 2 {
		timer := time.NewTimer(min(pause, p.maxTTL-(e.clock.now()-s.since)))
		select {
		case <-timer.C:
		case <-e.closing:
		}
		timer.Stop()
		age := e.clock.now() - s.since
		last := e.isClosing() || age >= p.maxTTL
		if rec.rest = s.rec.rest - age; rec.rest <= 0 {
			return
		}
		r := s.a.offering(&rec, s.ballot, true)
		r.must, r.asker = false, s
		s.mu.Lock()
		missing := s.missing
		s.mu.Unlock()
		r.send(context.Background(), missing) //nolint:forbidigo // in the background, bounded by the node timeout
		r.wait(context.Background())          //nolint:forbidigo // in the background, bounded by the node timeout
		s.mu.Lock()
		missing = s.missing
		s.mu.Unlock()
		if missing == 0 || last {
			return
		}
	}
}
