package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	namedTest    = regexp.MustCompile("`((?:Test|Example)[A-Z_][A-Za-z0-9_]*(?:_…)?)`")
	declaredTest = regexp.MustCompile(`(?m)^func ((?:Test|Example)[A-Za-z0-9_]+)\(`)
)

// Every test that a document names exists. `TestCE1_…` names the tests with that prefix.
func TestTestsExist(t *testing.T) {
	t.Parallel()
	const root = "../.."
	tests := map[string]bool{}
	var documents []string
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		if strings.HasSuffix(path, "_test.go") {
			source, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for _, found := range declaredTest.FindAllStringSubmatch(string(source), -1) {
				tests[found[1]] = true
			}
		} else if filepath.Ext(path) == ".md" {
			documents = append(documents, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}

	named := 0
	for _, path := range documents {
		for _, found := range namedTest.FindAllStringSubmatch(text(t, path), -1) {
			named++
			if !exists(tests, found[1]) {
				t.Errorf("%s: there is no %s", path, found[1])
			}
		}
	}
	if named < 100 {
		t.Errorf("the documents name only %d tests", named)
	}
}

// exists reports whether there is a test with the name or, if the name ends in "…", with that prefix.
func exists(tests map[string]bool, name string) bool {
	prefix, several := strings.CutSuffix(name, "…")
	if !several {
		return tests[name]
	}
	for test := range tests {
		if strings.HasPrefix(test, prefix) {
			return true
		}
	}
	return false
}
