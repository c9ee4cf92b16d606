package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// A Program is drawn from a seed: a description of the processes, and the steps that happen to them.
type Program struct {
	Seed uint64
	// Plan describes the processes in numbers, by name. 0 is the plainest value, and the same as an absent one:
	// shrinking makes numbers smaller, down to 0.
	Plan  map[string]int
	Steps []Step // in the order of time
}

// A Step is an event of a program, such as a fault.
type Step struct {
	At  time.Duration // since the beginning
	Do  string        // the name of the event
	Who int           // the number of the node, replica or request that it happens to
	For time.Duration // how long it lasts
	N   int           // a parameter of Do
	// With has further parameters of Do, by name. As in Plan, 0 is the plainest value, and the same as an absent one.
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

// numbers returns the numbers that are not 0, as "name=number", sorted by name.
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

// sorted returns p after sorting its steps, in place, in the order of time.
func (p Program) sorted() Program {
	slices.SortStableFunc(p.Steps, func(a, b Step) int { return int(a.At - b.At) })
	return p
}

// with returns p with another number in its plan.
func (p Program) with(name string, n int) Program {
	p.Plan = maps.Clone(p.Plan)
	p.Plan[name] = n
	return p
}

// without returns p without n steps from index i on.
func (p Program) without(i, n int) Program {
	p.Steps = slices.Delete(slices.Clone(p.Steps), i, min(i+n, len(p.Steps)))
	return p
}

// withHalvedStep returns p with a step that lasts half as long and has half of the number N.
func (p Program) withHalvedStep(i int) Program {
	p.Steps = slices.Clone(p.Steps)
	s := &p.Steps[i]
	s.For = (s.For / 2).Truncate(time.Millisecond)
	s.N /= 2
	return p
}

// withoutParameter returns p with a step that lacks a parameter in With.
func (p Program) withoutParameter(i int, name string) Program {
	p.Steps = slices.Clone(p.Steps)
	p.Steps[i].With = maps.Clone(p.Steps[i].With)
	delete(p.Steps[i].With, name)
	return p
}
