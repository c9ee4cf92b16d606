package sim

import (
	"maps"
	"slices"
)

// Shrink returns a program that still fails and is smaller: it has fewer steps, a plainer plan and shorter steps. It
// calls fails at most tries times.
func Shrink(p Program, tries int, fails func(Program) bool) Program {
	s := &shrinker{
		least: p,
		tries: tries,
		fails: fails,
	}

	for s.tries > 0 {
		plainer := s.shrinkPlan()
		fewer := s.removeSteps()
		shorter := s.shrinkSteps()

		progress := plainer || fewer || shorter
		if !progress {
			break
		}
	}

	return s.least
}

// A shrinker tries smaller versions of least, the smallest program so far that fails.
type shrinker struct {
	least Program
	tries int // the number of tries left
	fails func(Program) bool
}

// try replaces least by p if p fails, too, and reports whether it does. It returns false if no tries are left.
func (s *shrinker) try(p Program) bool {
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

// removeSteps removes steps: first half of them at once, then smaller runs, as delta debugging does (Zeller and
// Hildebrandt, 2002).
func (s *shrinker) removeSteps() (progress bool) {
	for n := len(s.least.Steps); n > 0; n /= 2 {
		for i := 0; i < len(s.least.Steps); {
			removed := s.try(s.least.without(i, n))
			if removed {
				progress = true // the next steps are at i now
			} else {
				i += n
			}
		}
	}

	return progress
}

// shrinkPlan makes each number of the plan as small as it can.
func (s *shrinker) shrinkPlan() (progress bool) {
	for _, name := range slices.Sorted(maps.Keys(s.least.Plan)) {
		for s.least.Plan[name] != 0 {
			plainer := s.shrinkNumber(name)
			if !plainer {
				break
			}
			progress = true
		}
	}

	return progress
}

// shrinkNumber makes a number of the plan 0, or else half of its value.
func (s *shrinker) shrinkNumber(name string) bool {
	removed := s.try(s.least.with(name, 0))
	if removed {
		return true
	}

	half := s.least.Plan[name] / 2
	if half == 0 {
		return false
	}

	return s.try(s.least.with(name, half))
}

// shrinkSteps halves the durations and numbers of steps, and removes their parameters.
func (s *shrinker) shrinkSteps() (progress bool) {
	for i := range s.least.Steps {
		// Half of N may be 0 while For is not, and the other way round.
		for s.least.Steps[i].For > 0 || s.least.Steps[i].N > 0 {
			shorter := s.try(s.least.withHalvedStep(i))
			if !shorter {
				break
			}
			progress = true
		}

		for _, name := range slices.Sorted(maps.Keys(s.least.Steps[i].With)) {
			removed := s.try(s.least.withoutParameter(i, name))
			progress = progress || removed
		}
	}

	return progress
}
