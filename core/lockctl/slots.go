package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/internal/slot"
)

// This file has the names of the slots of semaphores, as people read them.

// lockName returns the name of a lock for a table: its key, or the number and the key of its slot.
func lockName(key string) string {
	slotOf, number, isSlot := slot.Parse(key)
	if !isSlot {
		return quoteIfNeeded(key)
	}

	return fmt.Sprintf("slot %d of %s", number, quoteIfNeeded(slotOf))
}

// compareSlots orders keys. The slots of a semaphore follow its key, in the order of their numbers.
func compareSlots(a, b string) int {
	keyA, numberA := slotOrKey(a)
	keyB, numberB := slotOrKey(b)

	// The last comparison makes the order the same each time.
	return cmp.Or(cmp.Compare(keyA, keyB), cmp.Compare(numberA, numberB), cmp.Compare(a, b))
}

// slotOrKey returns the key of the semaphore and the number of a slot, or else the key and 0.
func slotOrKey(key string) (string, int) {
	slotOf, number, isSlot := slot.Parse(key)
	if !isSlot {
		return key, 0
	}
	return slotOf, number
}

// patternsOf returns the globs for the locks whose keys match the pattern, and for their slots.
func (f *fleet) patternsOf(pattern string) []string {
	patterns := f.keys.Resources(pattern)
	if pattern == "*" { // it matches the names of slots, too
		return patterns
	}

	return append(patterns, f.keys.Resources("4:slot/*:"+pattern+"/*:*")...)
}

// isSlotOfAnother reports whether a name that the globs match is a slot of a key that the pattern does not match. A
// pattern without wildcards is the key itself.
func isSlotOfAnother(name, pattern string) bool {
	slotOf, _, isSlot := slot.Parse(name)

	// With wildcards a few slots of other keys may be listed: Redis matches the pattern, and not this program.
	hasWildcards := strings.ContainsAny(pattern, `*?[\`)
	return isSlot && !hasWildcards && slotOf != pattern && name != pattern
}

// readSlots returns the states of the slots of a key on which any node has a lease, by their numbers. Slot 0 is the key
// itself, and is not one of them. How many permits the semaphore has is not stored, so all slots that it may have are read.
func (f *fleet) readSlots(ctx context.Context, key string) (states []*keyState, err error) {
	if len(key) == 0 || len(key) > slot.MaxKey { // the key of a semaphore is not so long
		return nil, nil
	}

	var names []string
	for i := 1; i < slot.Max; i++ {
		names = append(names, slot.Name(key, i))
	}

	// InspectAll waits for a silent node once for each part, so the parts are read at the same time.
	parts := slices.Collect(slices.Chunk(names, slotsPerRead))
	read := make([][]*keyState, len(parts))
	errs := make([]error, len(parts))
	var readers sync.WaitGroup
	for i, part := range parts {
		readers.Go(func() { read[i], errs[i] = f.readTaken(ctx, part) })
	}
	readers.Wait()

	states = slices.Concat(read...)
	f.readQueues(ctx, states)
	return states, cmp.Or(errs...)
}

// slotsPerRead is the number of keys for which InspectAll asks a node at once.
const slotsPerRead = 128

// readTaken returns the states of those keys on which any node has a lease.
func (f *fleet) readTaken(ctx context.Context, keys []string) (taken []*keyState, err error) {
	states, err := f.InspectAll(ctx, keys...)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	// If the nodes are unavailable, the states have their answers.
	if err != nil && !errors.Is(err, core.ErrUnavailable) {
		return nil, err
	}

	for i, state := range states {
		s := f.newKeyState(keys[i], state)
		isTaken := len(s.nodesWhere(hasLease)) > 0
		if isTaken {
			taken = append(taken, s)
		}
	}
	return taken, nil
}
