package sim

import (
	"maps"
	"slices"
)

// Shrink returns a program that still fails and has less: fewer steps, a plainer plan, shorter steps. fails is asked at most
// tries times.
func Shrink(p Program, tries int, fails func(Program) bool) Program {
	s := &shrinker{least: p, tries: tries, fails: fails}
	for progress := true; progress && s.tries > 0; {
		before := s.tries
		progress = s.plan()
		progress = s.steps() || progress
		progress = s.lengths() || progress
		if before == s.tries {
			break
		}
	}
	return s.least
}

type shrinker struct {
	least Program
	tries int
	fails func(Program) bool
}

// take keeps p if it fails as well.
func (s *shrinker) take(p Program) bool {
	if s.tries == 0 {
		return false
	}
	s.tries--
	if !s.fails(p) {
		return false
	}
	s.least = p
	return true
}

// steps removes steps: halves first, then less, as delta debugging does (Zeller and Hildebrandt, 2002).
func (s *shrinker) steps() (progress bool) {
	for n := len(s.least.Steps); n > 0; n /= 2 {
		for i := 0; i < len(s.least.Steps); {
			if s.take(s.least.without(i, n)) {
				progress = true
			} else {
				i += n
			}
		}
	}
	return progress
}

// plan makes each number 0, or half of what it is.
func (s *shrinker) plan() (progress bool) {
	for _, name := range slices.Sorted(maps.Keys(s.least.Plan)) {
		for n := s.least.Plan[name]; n != 0; n = s.least.Plan[name] {
			if !s.take(s.least.with(name, 0)) && (n/2 == 0 || !s.take(s.least.with(name, n/2))) {
				break
			}
			progress = true
		}
	}
	return progress
}

func (s *shrinker) lengths() (progress bool) {
	for i := range s.least.Steps {
		for s.least.Steps[i].For > 0 || s.least.Steps[i].N > 0 {
			if !s.take(s.least.shorter(i)) {
				break
			}
			progress = true
		}
		for _, name := range slices.Sorted(maps.Keys(s.least.Steps[i].With)) {
			progress = s.take(s.least.lacking(i, name)) || progress
		}
	}
	return progress
}
