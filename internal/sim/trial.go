package sim

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A Campaign is a simulation of programs.
type Campaign struct {
	Draw      func(r *rand.Rand) Program // Seed is set, and Steps are sorted, afterwards
	Run       func(t *Trial)             // in a bubble of its own
	MustReach []string                   // what a hundred programs must have counted; see [Trial.Count]
}

// A Trial is one run of a program, in a bubble that it begins.
type Trial struct {
	*testing.T // of this run; to report what breaks a rule is for Violation
	Program
	Began time.Time

	mu         sync.Mutex
	violations []string
	reached    Counts
	trace      []string
}

// Test runs the campaign for the seeds that [Seeds] takes.
func (c Campaign) Test(t *testing.T) {
	Seeds(t, 1, c.MustReach, c.test)
}

// test runs the program of a seed.
func (c Campaign) test(t *testing.T, seed uint64, reached Counts) {
	p := c.Draw(rand.New(rand.NewPCG(seed, 0)))
	p.Seed = seed
	first := c.run(t, p.sorted(), reached)
	if first.violations == nil {
		isAlone := !strings.Contains(t.Name(), "/") // SEED=n
		if isAlone && testing.Verbose() {
			t.Logf("%v\n\n%s", first.Program, first.story())
		}
		return
	}
	t.Logf("seed %d: %s", seed, first.violations[0]) // with -v, at once: whoever ends the run while the program is shrunk has seen it
	last := c.shrink(t, first)
	t.Errorf("%s\n\n%v\n\n%s\n\nfirst, with %d steps: %s", strings.Join(last.violations, "\n"), last.Program, last.story(),
		len(first.Steps), first.violations[0])
}

// shrink returns the run of the least program that fails.
func (c Campaign) shrink(t *testing.T, first *Trial) (last *Trial) {
	last = first
	Shrink(first.Program, *shrinks, func(p Program) bool {
		for range 2 { // see the package's document
			again := c.run(t, p, Counts{})
			if again.violations != nil {
				last = again
				return true
			}
		}
		return false
	})
	return last
}

func (c Campaign) run(t *testing.T, p Program, reached Counts) *Trial {
	trial := &Trial{Program: p, reached: reached}
	passed := t.Run("program", func(t *testing.T) { // a test of its own, that a Fatal ends
		synctest.Test(t, func(t *testing.T) {
			trial.T = t
			trial.Began = time.Now()
			c.Run(trial)
		})
	})
	hasViolation := trial.violations != nil
	if !passed && !hasViolation {
		trial.violations = []string{"the test failed"}
	}
	return trial
}

// Is returns a number of the plan.
func (t *Trial) Is(name string) int { return t.Plan[name] }

// Random returns a source for what is drawn as the program runs. Each stream has its own, which other streams do not change.
func (t *Trial) Random(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(t.Seed, 1+stream)) }

// Follow does each step at its time, until all are done or until end.
func (t *Trial) Follow(end time.Duration, do func(Step)) {
	for _, s := range t.Steps {
		if s.At > end {
			break
		}
		time.Sleep(time.Until(t.Began.Add(s.At)))
		_, what, _ := strings.Cut(strings.TrimSpace(s.String()), "  ")
		t.Tracef("%s", what)
		t.Count(s.Do)
		do(s)
	}
	time.Sleep(time.Until(t.Began.Add(end)))
}

// Violation reports that a rule is broken.
func (t *Trial) Violation(format string, args ...any) {
	t.Tracef("VIOLATION "+format, args...)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.violations = append(t.violations, fmt.Sprintf(format, args...))
}

// Count tells that something was reached.
func (t *Trial) Count(what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reached[what]++
}

// Tracef writes down what happens now.
func (t *Trial) Tracef(format string, args ...any) {
	line := fmt.Sprintf("%9.3fs  ", time.Since(t.Began).Seconds()) + fmt.Sprintf(format, args...)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.trace = append(t.trace, line)
}

// story is the trace: its beginning and, around the first violation, what fits a screen.
func (t *Trial) story() string {
	const most = 30
	lines := t.trace
	for i, l := range lines {
		if strings.Contains(l, "VIOLATION") {
			lines = lines[:min(i+3, len(lines))]
			break
		}
	}
	isTooLong := len(lines) > most
	if isTooLong && t.violations != nil {
		lines = append([]string{fmt.Sprintf("… %d lines", len(lines)-most)}, lines[len(lines)-most:]...)
	}
	return strings.Join(lines, "\n")
}
