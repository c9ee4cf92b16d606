package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// A gate tries mutants, and prints the result of each.
type gate struct {
	root    string // of the repository
	atOnce  int    // how many mutants are tried at a time
	timeout time.Duration
	out     io.Writer

	mu      sync.Mutex // guards the fields below, and out
	results []result
}

// A result tells whether a mutant was caught.
type result struct {
	mutant
	caught bool
	why    string // the test that caught the mutant, or why it counts as not caught
	took   time.Duration
	output string // of go test, if the mutant was not caught
}

// run tries the mutants. The error is nil only if each was caught.
func (g *gate) run(ctx context.Context, mutants []mutant) error {
	if len(mutants) == 0 {
		return errors.New("no mutant has such a name, guarantee or file")
	}

	began := time.Now()
	err := g.checkUnchanged(ctx, mutants)
	if err != nil {
		return err
	}

	dir, err := os.MkdirTemp("", "lockkit-mutants-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)

	slots := make(chan struct{}, g.atOnce)
	errs := make([]error, len(mutants))
	var tries sync.WaitGroup
	for i := range mutants {
		slots <- struct{}{}
		tries.Go(func() {
			defer func() { <-slots }()
			errs[i] = g.try(ctx, &mutants[i], filepath.Join(dir, fmt.Sprint(i)))
		})
	}
	tries.Wait()

	err = errors.Join(errs...)
	if err != nil {
		return err
	}
	return g.summarize(time.Since(began))
}

// checkUnchanged runs all tests of the mutants on the code as it is: they must pass, and each must run. Otherwise their
// failures would say nothing.
func (g *gate) checkUnchanged(ctx context.Context, mutants []mutant) error {
	patterns := map[string][]string{} // by package
	for _, m := range mutants {
		if !slices.Contains(patterns[m.pkg], m.pattern()) {
			patterns[m.pkg] = append(patterns[m.pkg], m.pattern())
		}
	}

	var faults []error

	passed := map[string][]string{} // by package
	for _, pkg := range slices.Sorted(maps.Keys(patterns)) {
		fmt.Fprintf(g.out, "unchanged: the tests of %s\n", pkg)
		o, err := goTest(ctx, g.root, "", pkg, strings.Join(patterns[pkg], "|"), 5*g.timeout)
		if err != nil {
			return err
		}

		passed[pkg] = o.passed
		if o.notBuilt || o.failed != nil {
			faults = append(faults, fmt.Errorf("%s fails without any mutant:\n%s", pkg, o.output))
		}
	}

	for _, m := range mutants {
		ran, err := m.ran(passed[m.pkg])
		if err == nil && !ran {
			err = m.fault("%s has no test that passes for %q", m.pkg, m.test)
		}
		faults = append(faults, err)
	}
	return errors.Join(faults...)
}

// try runs the test of a mutant with its change, and records the result. The files that go test needs for that have
// names that begin with path.
func (g *gate) try(ctx context.Context, m *mutant, path string) error {
	began := time.Now()
	changed, err := m.apply(g.root)
	if err != nil {
		return err
	}

	// The file keeps its extension, by which the go command knows it.
	file := path + filepath.Ext(m.file)
	overlay := path + ".json"

	replace := map[string]map[string]string{"Replace": {filepath.Join(g.root, m.file): file}}
	content, err := json.Marshal(replace)
	if err != nil {
		return err
	}

	err = errors.Join(
		os.WriteFile(file, []byte(changed), 0o600),
		os.WriteFile(overlay, content, 0o600),
	)
	if err != nil {
		return err
	}

	o, err := goTest(ctx, g.root, overlay, m.pkg, m.pattern(), g.timeout)
	if err != nil {
		return m.fault("%w", err)
	}

	g.add(judge(m, o, time.Since(began)))
	return nil
}

// judge returns the result of a mutant, given the outcome of its test. A mutant is caught only by a test that fails: one
// that is not built, or hangs, shows nothing about the test.
func judge(m *mutant, o outcome, took time.Duration) result {
	r := result{mutant: *m, took: took, output: o.output}
	switch {
	case o.notBuilt:
		r.why = "IS NOT BUILT"
	case o.timedOut:
		r.why = "HANGS"
	case len(o.failed) > 0:
		r.caught = true
		r.why = "caught by " + slices.Min(o.failed)
		r.output = ""
	case len(o.passed) == 0:
		r.why = "RUNS NO TEST"
	default:
		r.why = "SURVIVED " + m.test
	}
	return r
}

// add records a result and prints it.
func (g *gate) add(r result) {
	g.mu.Lock()
	defer g.mu.Unlock()

	g.results = append(g.results, r)
	fmt.Fprintf(
		g.out, "%s | %s | %s | %s | %.1f s\n",
		r.guarantee, r.name, r.file, r.why, r.took.Seconds(),
	)
}

// summarize prints how many mutants of each guarantee were caught, and returns an error that names the others.
func (g *gate) summarize(took time.Duration) error {
	tried := map[string]int{}
	caught := map[string]int{}
	var survivors []error
	for _, r := range g.results {
		tried[r.guarantee]++
		if r.caught {
			caught[r.guarantee]++
			continue
		}

		survivors = append(survivors, r.fault(
			"%s\n  repeat it: go run ./internal/mutants -run '^%s$'\n%s",
			r.why, regexp.QuoteMeta(r.name), lastLines(r.output, 20),
		))
	}

	fmt.Fprintf(g.out, "\n%d mutants in %v; caught of each guarantee:\n", len(g.results), took.Round(time.Second))
	for _, guarantee := range slices.Sorted(maps.Keys(tried)) {
		fmt.Fprintf(g.out, "  %d of %d  %s\n", caught[guarantee], tried[guarantee], guarantee)
	}

	if survivors == nil {
		return nil
	}
	return fmt.Errorf(
		"%d of %d mutants were not caught:\n%w",
		len(survivors), len(g.results), errors.Join(survivors...),
	)
}

// lastLines returns the last n lines of a text.
func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
