package sim

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A Campaign is a simulation of programs.
type Campaign struct {
	Draw      func(r *rand.Rand) Program // need not set Seed nor sort Steps
	Run       func(t *Trial)             // is called in a bubble of its own
	MustReach []string                   // events that a hundred programs must count; see [Trial.Count]
	// If Patch is set, fixed processes run the test as it is built with this patch. A library needs one if its goroutines
	// wait in a loop that blocks nowhere: in a fixed process no other goroutine would run then. The patch makes the loop
	// call runtime.Gosched.
	Patch *Patch

	build func() (program string, err error) // with Patch, if it is set
}

// A Trial is one run of a program, in a bubble that begins and ends with the run.
type Trial struct {
	*testing.T // of this run; call Violation, not Error, if a rule is broken
	Program
	Began time.Time

	mu         sync.Mutex // guards the fields below
	violations []string
	reached    Counts
	trace      []traced // in the order of time
}

const violationMark = "VIOLATION "

// A traced is a line of a trace.
type traced struct {
	at   time.Duration // since the beginning
	text string
}

func (l traced) String() string { return fmt.Sprintf("%9.3fs  %s", l.at.Seconds(), l.text) }

const maxViolations = 5 // that many violations of a run are reported

// Test runs the campaign for the seeds that [Seeds] chooses.
func (c Campaign) Test(t *testing.T) {
	c = c.withBuild(t)
	simulation{run: c.test, shrink: c.shrinkFixed, build: c.build}.runSeeds(t, 1, c.MustReach)
}

// test runs the program of a seed. If it breaks a rule, test shrinks the program and reports the smallest.
func (c Campaign) test(t *testing.T, seed uint64, reached Counts) {
	p := c.program(seed)
	if given := givenProgram(t); given != nil {
		p = *given
	}
	first := c.run(t, p, reached)

	isAlone := !strings.Contains(t.Name(), "/") // SEED=n
	switch {
	case first.violations == nil:
		if isAlone && testing.Verbose() {
			t.Log(first.report())
		}
		return
	case isFixed(): // the process that started this one shrinks the program
		t.Error(first.report())
		return
	}

	// With -v this is printed at once, and not lost if the run is interrupted while the program is shrunk.
	t.Logf("seed %d: %s", seed, first.violations[0])
	r, output, text := repetition{test: testOf(t), seed: seed, build: c.build}.find()
	t.Log(text)

	if r.attempt != 0 {
		t.Error(c.shrinkFixed(r, output))
	} else {
		t.Error(c.shrink(t, first))
	}
}

// withBuild returns c after setting build, if it has a Patch. The test is built once, when build is first called.
func (c Campaign) withBuild(t *testing.T) Campaign {
	if c.Patch != nil {
		c.build = sync.OnceValues(func() (string, error) { return c.Patch.build(t.TempDir()) })
	}
	return c
}

// program returns the program of a seed.
func (c Campaign) program(seed uint64) Program {
	p := c.Draw(rand.New(rand.NewPCG(seed, 0)))
	p.Seed = seed
	return p.sorted()
}

// shrinkFixed returns the output of the smallest program that fails in a fixed process.
func (c Campaign) shrinkFixed(r repetition, output string) string {
	first := c.program(r.seed)
	Shrink(first, *shrinks, func(p Program) bool {
		smaller, failed, err := r.run(&p)
		isSmaller := failed && err == nil
		if isSmaller {
			output = smaller
		}
		return isSmaller
	})
	return fmt.Sprintf("%s\nof %d steps", output, len(first.Steps))
}

// shrink returns the report of the smallest program that fails in this process.
func (c Campaign) shrink(t *testing.T, first *Trial) string {
	last := first
	runs := 0
	Shrink(first.Program, *shrinks, func(p Program) bool {
		// A program that fails does so in most runs, so two runs are enough.
		for range 2 {
			if runs == *shrinks {
				return false
			}
			runs++

			again := c.run(t, p, Counts{})
			if again.violations != nil {
				last = again
				return true
			}
		}
		return false
	})

	return fmt.Sprintf("%s\n\nfirst, with %d steps: %s", last.report(), len(first.Steps), first.violations[0])
}

// run runs a program in a subtest, which a Fatal ends without ending the campaign.
func (c Campaign) run(t *testing.T, p Program, reached Counts) *Trial {
	trial := &Trial{Program: p, reached: reached}
	passed := t.Run("program", func(t *testing.T) {
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

// Random returns a source of random numbers for use while the program runs. Each stream has its own source, independent
// of the use of others.
func (t *Trial) Random(stream uint64) *rand.Rand {
	return rand.New(rand.NewPCG(t.Seed, 1+stream))
}

// Follow does each step at its time, until all are done or until end. It returns at end, or when the last step is done
// if that is later.
func (t *Trial) Follow(end time.Duration, do func(Step)) {
	for _, s := range t.Steps {
		if s.At > end {
			break
		}
		time.Sleep(time.Until(t.Began.Add(s.At)))
		t.Note(s)
		do(s)
	}

	time.Sleep(time.Until(t.Began.Add(end)))
}

// Note traces and counts a step that happens now.
func (t *Trial) Note(s Step) {
	_, text, _ := strings.Cut(strings.TrimSpace(s.String()), "  ") // without the time
	t.Tracef("%s", text)
	t.Count(s.Do)
}

// Violation reports that a rule is broken.
func (t *Trial) Violation(format string, args ...any) {
	t.ViolationAt(time.Now(), format, args...)
}

// ViolationAt reports that a rule was broken at a time, of which the trial learned later.
func (t *Trial) ViolationAt(at time.Time, format string, args ...any) {
	text := fmt.Sprintf(format, args...)

	t.mu.Lock()
	defer t.mu.Unlock()

	t.violations = append(t.violations, text)
	t.addLine(traced{at.Sub(t.Began), violationMark + text})
}

// Count counts an event that the trial reached.
func (t *Trial) Count(what string) {
	t.mu.Lock()
	defer t.mu.Unlock()

	t.reached[what]++
}

// Tracef adds a line to the trace, with the present time.
func (t *Trial) Tracef(format string, args ...any) {
	text := fmt.Sprintf(format, args...)

	t.mu.Lock()
	defer t.mu.Unlock()

	t.addLine(traced{time.Since(t.Began), text})
}

// addLine adds a line to the trace, after all lines of the same time. t.mu must be held.
func (t *Trial) addLine(l traced) {
	i := len(t.trace)
	for i > 0 && t.trace[i-1].at > l.at {
		i--
	}

	t.trace = slices.Insert(t.trace, i, l)
}

// report returns the violations, the program and the trace.
func (t *Trial) report() string {
	violations := t.violations[:min(len(t.violations), maxViolations)]
	sections := []string{strings.Join(violations, "\n"), t.Program.String(), t.story(), t.digest()}
	return strings.TrimSpace(strings.Join(sections, "\n\n"))
}

// digest returns a line with a hash of the whole trace. Runs with equal lines had the same trace.
func (t *Trial) digest() string {
	h := fnv.New64a()
	for _, l := range t.trace {
		fmt.Fprintln(h, int64(l.at), l.text)
	}

	return fmt.Sprintf("trace %016x, of %d lines", h.Sum64(), len(t.trace))
}

// story returns the trace. If there is a violation, it returns only the last lines, up to shortly after the first one.
func (t *Trial) story() string {
	const most = 30
	var lines []string
	for _, l := range t.trace {
		lines = append(lines, l.String())
	}

	first := slices.IndexFunc(t.trace, func(l traced) bool { return strings.HasPrefix(l.text, violationMark) })
	if first >= 0 {
		lines = lines[:min(first+3, len(lines))]
	}

	isTooLong := len(lines) > most
	if isTooLong && t.violations != nil {
		lines = append([]string{fmt.Sprintf("… %d lines", len(lines)-most)}, lines[len(lines)-most:]...)
	}

	return strings.Join(lines, "\n")
}
