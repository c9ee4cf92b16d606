package main

import (
	"context"
	"sync"
)

// boardSize is how many events are kept: for those who look, and for the download.
const boardSize = 20_000

// A board keeps the last events, for any number of readers. None of them can hold the others up, and a reader that is too
// slow misses what was dropped.
type board struct {
	mu     sync.Mutex
	events []Event // a ring: number n is at n modulo boardSize
	next   int     // number of the next event
	state  []byte  // the State, as JSON
	states int     // how often there was a new one
	more   chan struct{}
}

func newBoard() *board { return &board{more: make(chan struct{})} }

func (b *board) add(e Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.events) < boardSize {
		b.events = append(b.events, e)
	} else {
		b.events[b.next%boardSize] = e
	}
	b.next++
	b.wake()
}

func (b *board) post(state []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.state = state
	b.states++
	b.wake()
}

func (b *board) wake() {
	close(b.more)
	b.more = make(chan struct{})
}

// since returns the events from number n on, as far as they are kept, the number of the next one, and what is closed when
// there is more.
func (b *board) since(n int) (events []Event, next int, more <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for n = max(n, b.next-len(b.events)); n < b.next; n++ {
		events = append(events, b.events[n%boardSize])
	}
	return events, b.next, b.more
}

// latest returns the State, and how many there were.
func (b *board) latest() (state []byte, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state, b.states
}

// end is the number of the next event.
func (b *board) end() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.next
}

// await returns the first event from number n on that matches.
func (b *board) await(ctx context.Context, n int, matches func(Event) bool) (Event, error) {
	for {
		events, next, more := b.since(n)
		for _, e := range events {
			if matches(e) {
				return e, nil
			}
		}
		n = next
		select {
		case <-more:
		case <-ctx.Done():
			return Event{}, context.Cause(ctx)
		}
	}
}
