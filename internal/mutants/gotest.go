package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// An outcome is the outcome of one go test.
type outcome struct {
	notBuilt bool
	timedOut bool
	passed   []string // names of tests, and of subtests
	failed   []string // or the tests that were running when the process ended
	output   string
}

// goTest runs the tests of a package that match pattern. With an overlay, the package is built from its files.
func goTest(
	ctx context.Context, root, overlay, pkg, pattern string, timeout time.Duration,
) (outcome, error) {
	args := []string{
		"test", "-json", "-vet=off", "-count=1", "-ldflags=-w",
		"-timeout", timeout.String(),
		"-run", pattern,
	}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}

	module, pkg := moduleOf(root, pkg)
	cmd := exec.CommandContext(ctx, "go", append(args, pkg)...)
	cmd.Dir = module
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	events, err := cmd.Output()

	// A test that fails is no error of the command.
	var ended *exec.ExitError
	isUnknown := err != nil && !errors.As(err, &ended) || ctx.Err() != nil
	if isUnknown {
		return outcome{}, fmt.Errorf("go test %s: %w", pkg, errors.Join(err, ctx.Err()))
	}

	o := readEvents(events)
	if err != nil && o.failed == nil && !o.notBuilt {
		return o, fmt.Errorf("go test %s: %w\n%s%s", pkg, err, stderr.String(), o.output)
	}
	return o, nil
}

// moduleOf returns the directory of the module that has a package of the repository, and the package as seen from there.
// A nested module cannot be tested from the root.
func moduleOf(root, pkg string) (dir, inside string) {
	inside = "."
	for dir = filepath.Join(root, pkg); dir != root; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, inside
		}
		inside = "./" + filepath.Join(filepath.Base(dir), inside)
	}
	return root, pkg
}

// readEvents returns the outcome, given the output of go test -json.
func readEvents(events []byte) (o outcome) {
	running := map[string]bool{}
	var output strings.Builder

	for line := range bytes.Lines(events) {
		var e struct{ Action, Test, Output string }
		if json.Unmarshal(line, &e) != nil {
			continue
		}

		output.WriteString(e.Output)
		switch {
		case e.Action == "build-fail":
			o.notBuilt = true
		case e.Test == "":
			continue
		case e.Action == "run":
			running[e.Test] = true
		case e.Action == "pass":
			o.passed = append(o.passed, e.Test)
			delete(running, e.Test)
		case e.Action == "fail":
			o.failed = append(o.failed, e.Test)
			delete(running, e.Test)
		case e.Action == "skip":
			delete(running, e.Test)
		}
	}

	for test := range running {
		o.failed = append(o.failed, test)
	}
	o.output = output.String()
	o.timedOut = strings.Contains(o.output, "panic: test timed out after ")
	return o
}

// pattern returns the argument of go test -run for the mutant's test.
func (m *mutant) pattern() string {
	name, subtests, hasSubtests := strings.Cut(m.test, "/")
	if !hasSubtests {
		return "^" + name + "$"
	}
	return "^" + name + "$/" + subtests
}

// ran reports whether one of the named tests is the mutant's, or a subtest that it asks for.
func (m *mutant) ran(names []string) (bool, error) {
	parts := strings.Split(strings.ReplaceAll(m.pattern(), " ", "_"), "/")
	for _, name := range names {
		levels := strings.Split(name, "/")
		matches := len(levels) == len(parts)
		for i := 0; matches && i < len(parts); i++ {
			matched, err := regexp.MatchString(parts[i], levels[i])
			if err != nil {
				return false, m.fault("%v", err)
			}
			matches = matched
		}

		if matches {
			return true, nil
		}
	}
	return false, nil
}
