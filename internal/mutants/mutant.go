package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// A mutant is a change of one file that breaks a guarantee, and the test that must notice.
type mutant struct {
	name      string
	guarantee string // as docs/guarantees.md words it
	file      string // from the root of the repository
	pkg       string // of the test, as "./core"
	test      string // name of the test, and after a slash a pattern for its subtests
	change    []changedLine
	at        string // place in the list, as "quorum.txt:12"
}

// A changedLine is a line of a mutant's change.
type changedLine struct {
	op   byte   // '-': the line is removed; '+': it is added; ' ': it stays
	text string // without indentation
}

// loadLists returns the mutants of all lists in a directory. The error names all faults of the lists: a
// change that does not apply any more, a guarantee that the document does not have, a test that does not exist.
func loadLists(root, dir string) ([]mutant, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil {
		return nil, err
	}

	var all []mutant
	var faults []error
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}

		mutants, err := parseList(filepath.Base(path), string(content))
		all = append(all, mutants...)
		faults = append(faults, err)
	}

	guarantees, err := os.ReadFile(filepath.Join(root, "docs", "guarantees.md"))
	if err != nil {
		return nil, err
	}

	known := map[string]string{} // the place of each name
	for _, m := range all {
		if first := known[m.name]; first != "" {
			faults = append(faults, m.fault("its name is that of the mutant at %s", first))
		}

		known[m.name] = m.at
		faults = append(faults, m.check(root, string(guarantees)))
	}
	return all, errors.Join(faults...)
}

// parseList returns the mutants of a list. They are separated by empty lines; lines that begin with "#" are comments.
func parseList(name, content string) (mutants []mutant, err error) {
	var faults []error
	var current *mutant

	for i, line := range strings.Split(content, "\n") {
		at := fmt.Sprintf("%s:%d", name, i+1)
		isEmpty := strings.TrimSpace(line) == ""

		switch {
		case strings.HasPrefix(line, "#"):
			continue
		case isEmpty:
			current = nil
			continue
		case current == nil:
			mutants = append(mutants, mutant{at: at})
			current = &mutants[len(mutants)-1]
		}

		understood := current.parseLine(line)
		if !understood {
			faults = append(faults, fmt.Errorf(
				"%s: %q is neither a field (mutant, guarantee, file, test) nor a line of the change %s",
				at, line, `("- ", "+ " or two spaces)`,
			))
		}
	}

	for _, m := range mutants {
		isComplete := m.name != "" && m.guarantee != "" && m.file != "" && m.test != "" && m.change != nil
		if !isComplete {
			faults = append(faults, m.fault("it needs all of mutant, guarantee, file, test, and the change"))
		}
	}
	return mutants, errors.Join(faults...)
}

// parseLine adds a line of a list to the mutant, and reports whether the line is understood.
func (m *mutant) parseLine(line string) bool {
	for _, op := range []byte("-+ ") {
		if text, isChange := strings.CutPrefix(line, string(op)+" "); isChange {
			m.change = append(m.change, changedLine{op, strings.TrimSpace(text)})
			return true
		}
	}

	field, value, _ := strings.Cut(line, ":")
	value = strings.TrimSpace(value)
	switch field {
	case "mutant":
		m.name = value
	case "guarantee":
		m.guarantee = value
	case "file":
		m.file = value
	case "test":
		pkg, test, _ := strings.Cut(value, " ")
		m.pkg = pkg
		m.test = test
	default:
		return false
	}
	return true
}

// fault returns an error about the mutant.
func (m *mutant) fault(format string, args ...any) error {
	return fmt.Errorf("%s: %q: %w", m.at, m.name, fmt.Errorf(format, args...))
}

// check returns an error if the change does not apply, the guarantee is not in the document, or the test does not
// exist. It does not run anything.
func (m *mutant) check(root, guarantees string) error {
	var faults []error

	_, err := m.apply(root)
	faults = append(faults, err)

	if !strings.Contains(guarantees, m.guarantee) {
		faults = append(faults, m.fault("docs/guarantees.md does not have the words %q", m.guarantee))
	}

	name, _, _ := strings.Cut(m.test, "/")
	tests, err := filepath.Glob(filepath.Join(root, m.pkg, "*_test.go"))
	if err != nil {
		return err
	}

	declared := regexp.MustCompile(`(?m)^func ` + regexp.QuoteMeta(name) + `\(`)
	for _, path := range tests {
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}

		if declared.Match(source) {
			return errors.Join(faults...)
		}
	}
	return errors.Join(append(faults, m.fault("%s has no test %s", m.pkg, name))...)
}

// apply returns the changed text of the file. The lines of the change must be in the file one after the other, exactly
// once. Indentation and empty lines do not count.
func (m *mutant) apply(root string) (changed string, err error) {
	content, err := os.ReadFile(filepath.Join(root, m.file))
	if err != nil {
		return "", m.fault("%v", err)
	}

	lines := strings.Split(string(content), "\n")

	var wanted, replacement []string
	for _, line := range m.change {
		if line.op != '+' {
			wanted = append(wanted, line.text)
		}
		if line.op != '-' {
			replacement = append(replacement, line.text)
		}
	}

	found := 0
	for i := range lines {
		length, ok := matchAt(lines[i:], wanted)
		if !ok {
			continue
		}

		found++
		before := strings.Join(lines[:i], "\n")
		after := strings.Join(lines[i+length:], "\n")
		changed = strings.Join([]string{before, strings.Join(replacement, "\n"), after}, "\n")
	}

	if found != 1 {
		return "", m.fault(
			"%s must have these lines once, and has them %d times:\n\t%s",
			m.file, found, strings.Join(wanted, "\n\t"),
		)
	}
	return changed, nil
}

// matchAt reports whether lines begin with the wanted ones, and how many of the lines these are.
func matchAt(lines, wanted []string) (length int, ok bool) {
	matched := 0
	for i, line := range lines {
		line = strings.TrimSpace(line)
		isSkipped := line == "" && matched > 0
		if isSkipped {
			continue
		}

		differs := matched == len(wanted) || line != wanted[matched]
		if differs {
			return 0, false
		}

		matched++
		if matched == len(wanted) {
			return i + 1, true
		}
	}
	return 0, false
}
