package slot

import (
	"math/rand/v2"
	"slices"
	"sync"
)

// maxIdle is the number of keys without callers for which a Memory keeps the slot that was used last.
const maxIdle = 1024

// A Memory knows, for each key, in which slots this process has a part: callers that ask for the slot, wait for it or
// hold it. Callers of one process avoid the slots of one another, and begin with a slot that the process gave back. A
// Memory only guesses which slots may be free. The zero value is empty. It is safe for concurrent use.
type Memory struct {
	mu    sync.Mutex       // guards the fields below
	inUse map[string]*uses // by key; an entry exists while the key has callers
	idle  map[string]int   // by key without callers: the slot that was used last; at most maxIdle
}

// The uses of the slots of a key by this process.
type uses struct {
	callers map[int]int // by slot, without zeros
	free    []int       // the slots that were given back and have no callers; the latest is last
}

// EnterFirst returns the slot that a new caller asks for first, and records the caller there: the slot that this process
// gave back last, or else one at random.
func (m *Memory) EnterFirst(key string, k int) int {
	m.mu.Lock()
	defer m.mu.Unlock()

	u := m.usesOf(key)
	for at, i := range slices.Backward(u.free) {
		if i < k {
			u.free = slices.Delete(u.free, at, at+1)
			u.callers[i]++
			return i
		}
	}
	return u.enterAny(k, nil)
}

// EnterAnother returns a slot at random that the caller has not asked for, and records the caller
// there. It prefers slots in which this process has no part. At least one of the k slots must be left.
func (m *Memory) EnterAnother(key string, k int, asked []int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.usesOf(key).enterAny(k, asked)
}

// enterAny returns a slot at random that is not in asked, and records a caller there.
func (u *uses) enterAny(k int, asked []int) int {
	// To search asked for each slot would take a call that asks each of many slots seconds.
	isAsked := make([]bool, k)
	for _, i := range asked {
		isAsked[i] = true
	}

	chosen := -1
	isChosenUsed, alike := false, 0
	for i := range k {
		if isAsked[i] {
			continue
		}

		isUsed := u.callers[i] > 0
		switch {
		case chosen < 0 || isChosenUsed && !isUsed: // the first, or the first that is unused
			alike = 1
		case isUsed != isChosenUsed:
			continue
		default:
			alike++
		}

		// Each of the slots that are alike is chosen with the same probability.
		if rand.IntN(alike) == 0 {
			chosen = i
			isChosenUsed = isUsed
		}
	}

	// A slot with a caller is not free.
	u.free = slices.DeleteFunc(u.free, func(i int) bool { return i == chosen })
	u.callers[chosen]++
	return chosen
}

// Leave records that a caller has no part in a slot any more. If it had the slot, it must have given it back before: the
// next caller asks for it.
func (m *Memory) Leave(key string, i int, hadIt bool) {
	m.mu.Lock()
	defer m.mu.Unlock()

	u := m.inUse[key]
	u.callers[i]--
	isUnused := u.callers[i] == 0
	if isUnused {
		delete(u.callers, i)
	}
	if isUnused && hadIt {
		u.free = append(u.free, i)
	}

	if len(u.callers) > 0 {
		return
	}

	delete(m.inUse, key)
	if len(u.free) > 0 {
		m.remember(key, u.free[len(u.free)-1])
	}
}

// remember keeps the slot that was used last of a key without callers. If there are too many such keys, it forgets any
// other.
func (m *Memory) remember(key string, i int) {
	for other := range m.idle {
		if len(m.idle) < maxIdle {
			break
		}
		delete(m.idle, other)
	}

	if m.idle == nil {
		m.idle = map[string]int{}
	}
	m.idle[key] = i
}

// usesOf returns the uses of a key that gets a caller.
func (m *Memory) usesOf(key string) *uses {
	u := m.inUse[key]
	if u != nil {
		return u
	}

	u = &uses{callers: map[int]int{}}
	if last, known := m.idle[key]; known {
		u.free = append(u.free, last)
		delete(m.idle, key)
	}

	if m.inUse == nil {
		m.inUse = map[string]*uses{}
	}
	m.inUse[key] = u
	return u
}
