package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// A Program is what a seed draws.
type Program struct {
	Seed uint64
	// Plan says what the processes are like, in numbers by name. 0 is the plainest, and the same as absent: a program is
	// shrunk towards that.
	Plan  map[string]int
	Steps []Step // what happens, in the order of time
}

// A Step is something that happens.
type Step struct {
	At  time.Duration // from the beginning
	Do  string
	Who int           // whom it happens to
	For time.Duration // how long it lasts
	N   int           // what Do takes it for
	// With says more, in numbers by name, as Plan does.
	With map[string]int
}

func (s Step) String() string {
	text := fmt.Sprintf("%8v  %s %d", s.At.Round(time.Millisecond), s.Do, s.Who)
	if s.For != 0 {
		text += fmt.Sprintf(" for %v", s.For.Round(time.Millisecond))
	}
	if s.N != 0 {
		text += fmt.Sprintf(" (%d)", s.N)
	}
	return strings.TrimRight(text+"  "+numbers(s.With), " ")
}

// numbers are those that are not 0.
func numbers(all map[string]int) string {
	var text []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if n := all[name]; n != 0 {
			text = append(text, fmt.Sprintf("%s=%d", name, n))
		}
	}
	return strings.Join(text, " ")
}

// String returns the program as lines: its plan, and a line for each step.
func (p Program) String() string {
	lines := []string{fmt.Sprintf("seed %d: %s", p.Seed, numbers(p.Plan))}
	for _, s := range p.Steps {
		lines = append(lines, s.String())
	}
	return strings.Join(lines, "\n")
}

// sorted is p with its steps in the order of time.
func (p Program) sorted() Program {
	slices.SortStableFunc(p.Steps, func(a, b Step) int { return int(a.At - b.At) })
	return p
}

// with is p with another number in its plan.
func (p Program) with(name string, n int) Program {
	p.Plan = maps.Clone(p.Plan)
	p.Plan[name] = n
	return p
}

// without is p without n steps from i on.
func (p Program) without(i, n int) Program {
	p.Steps = slices.Delete(slices.Clone(p.Steps), i, min(i+n, len(p.Steps)))
	return p
}

// shorter is p with a step that is plainer: it lasts half as long, or has a smaller number.
func (p Program) shorter(i int) Program {
	p.Steps = slices.Clone(p.Steps)
	s := &p.Steps[i]
	s.For = (s.For / 2).Truncate(time.Millisecond)
	s.N /= 2
	return p
}

// lacking is p with a step that has 0 for the number of that name.
func (p Program) lacking(i int, name string) Program {
	p.Steps = slices.Clone(p.Steps)
	p.Steps[i].With = maps.Clone(p.Steps[i].With)
	delete(p.Steps[i].With, name)
	return p
}
