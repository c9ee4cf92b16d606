// Package examples runs the examples of a package in bubbles of testing/synctest. A machine that stands still for a second
// does not change the output of an example there, because the clock of the bubble stands still, too. go test runs
// examples in real time: a node that stands still for longer than the node timeout then counts as down.
package examples

import (
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
)

// Run runs all examples of the package in the current directory, by their names. It compares their output with their
// comments, as go test does. The test fails if an example that has an Output comment is missing, or has none.
func Run(t *testing.T, all map[string]func()) {
	t.Helper()
	documented, err := documentedIn(".")
	if err != nil {
		t.Fatal(err)
	}

	// An example that is not given would not run at all, because make test leaves out go test's own runs.
	names := slices.Sorted(maps.Keys(documented))
	if given := slices.Sorted(maps.Keys(all)); !slices.Equal(given, names) {
		t.Fatalf("the examples given are %v; those with an Output comment are %v", given, names)
	}

	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			got := printed(t, all[name])
			if err := compare(got, documented[name]); err != nil {
				t.Error(err)
			}
		})
	}
}

// documentedIn returns the examples in the test files of a directory that have an Output comment.
func documentedIn(dir string) (map[string]*doc.Example, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return nil, err
	}

	var files []*ast.File
	for _, path := range paths {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}

	found := map[string]*doc.Example{}
	for _, e := range doc.Examples(files...) {
		if e.Output != "" || e.EmptyOutput {
			found["Example"+e.Name] = e
		}
	}
	return found, nil
}

// printed runs an example in a bubble, and returns its standard output.
func printed(t *testing.T, example func()) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "output")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}

	standard := os.Stdout
	os.Stdout = file
	defer func() { os.Stdout = standard }()
	synctest.Test(t, func(*testing.T) { example() })

	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	output, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(output)
}

// compare returns an error if the output of an example differs from its comment. Space around the output does
// not matter, nor does the order of the lines if the comment says so.
func compare(printed string, e *doc.Example) error {
	got := strings.Split(strings.TrimSpace(printed), "\n")
	want := strings.Split(strings.TrimSpace(e.Output), "\n")
	if e.Unordered {
		slices.Sort(got)
		slices.Sort(want)
	}

	if !slices.Equal(got, want) {
		return fmt.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	return nil
}
