package examples

import (
	"go/doc"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCompare(t *testing.T) {
	for _, c := range []struct {
		printed, output string
		unordered, ok   bool
	}{
		{"", "", false, true},
		{"a\nb\n", "a\nb", false, true},
		{"b\na\n", "a\nb", false, false},
		{"b\na\n", "a\nb", true, true},
		{"b\na\na\n", "a\nb", true, false},
		{"", "a", false, false},
		{"a", "", false, false},
	} {
		err := compare(c.printed, &doc.Example{Output: c.output, Unordered: c.unordered})
		if (err == nil) != c.ok {
			t.Errorf("%q printed, %q documented, unordered %v: %v", c.printed, c.output, c.unordered, err)
		}
	}
}

// Each library that has examples with an Output comment runs them in bubbles. Its tests skip them otherwise.
func TestEveryLibrary(t *testing.T) {
	const root = "../.."
	libraries := 0
	err := filepath.WalkDir(root, func(dir string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		if dir == filepath.Join(root, "examples") || dir != root && strings.HasPrefix(entry.Name(), ".") {
			return filepath.SkipDir
		}

		documented, err := documentedIn(dir)
		if err != nil || len(documented) == 0 {
			return err
		}
		libraries++
		source, err := os.ReadFile(filepath.Join(dir, "examples_test.go"))
		if err != nil {
			return err
		}
		if !strings.Contains(string(source), "examples.Run(t, ") {
			t.Errorf("%s does not call examples.Run", dir)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if libraries < 9 {
		t.Errorf("%d libraries with examples found", libraries)
	}
}
