package main

import (
	"cmp"
	"fmt"
	"strings"

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
