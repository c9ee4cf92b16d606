package sim

import (
	"maps"
	"slices"
)

// Shrink returns a program that still fails and has less: fewer steps, a plainer plan, shorter steps. fails is asked at most
// tries times.
func Shrink(p Program, tries int, fails func(Program) bool) Program {
	s := &shrinker{least: p, tries: tries, fails: fails}
	for s.tries > 0 {
		plainer := s.plan()
		fewer := s.steps()
		shorter := s.lengths()
		progress := plainer || fewer || shorter
		if !progress {
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
			removed := s.take(s.least.without(i, n))
			if removed {
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
		for s.least.Plan[name] != 0 {
			plainer := s.number(name)
			if !plainer {
				break
			}
			progress = true
		}
	}
	return progress
}

// number makes a number of the plan 0, or half of what it is.
func (s *shrinker) number(name string) bool {
	removed := s.take(s.least.with(name, 0))
	if removed {
		return true
	}
	half := s.least.Plan[name] / 2
	if half == 0 {
		return false
	}
	return s.take(s.least.with(name, half))
}

func (s *shrinker) lengths() (progress bool) {
	for i := range s.least.Steps {
		for s.least.Steps[i].For > 0 || s.least.Steps[i].N > 0 {
			shorter := s.take(s.least.shorter(i))
			if !shorter {
				break
			}
			progress = true
		}
		for _, name := range slices.Sorted(maps.Keys(s.least.Steps[i].With)) {
			removed := s.take(s.least.lacking(i, name))
			progress = progress || removed
		}
	}
	return progress
}
