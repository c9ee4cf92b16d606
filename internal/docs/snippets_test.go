package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var goBlock = regexp.MustCompile("(?ms)^```go\n(.*?)^```$")

// What these pages show of Go is in files that are compiled: line by line, whatever the indentation. A line "// …" is for
// lines that the page leaves out.
func TestSnippets(t *testing.T) {
	t.Parallel()
	files := sources(t)
	for page, least := range map[string]int{"../../README.md": 5, "../../docs/migrate.md": 12, "../../docs/recipes.md": 6} {
		content, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		blocks := goBlock.FindAllStringSubmatch(string(content), -1)
		if len(blocks) < least {
			t.Errorf("%s has %d blocks of Go, fewer than %d", page, len(blocks), least)
		}
		for _, block := range blocks {
			if !shown(files, block[1]) {
				t.Errorf("%s: in no file that is compiled:\n%s", page, block[1])
			}
		}
	}
}

// shown reports whether one of the files has all parts of a block, in their order.
func shown(files []string, block string) bool {
	var parts []string
	for part := range strings.SplitSeq(flat(block), "\n// …\n") {
		parts = append(parts, "\n"+strings.Trim(part, "\n")+"\n")
	}
	for _, file := range files {
		found := true
		for _, part := range parts {
			var before bool
			_, file, before = strings.Cut(file, part)
			if found = found && before; !found {
				break
			}
			file = "\n" + file
		}
		if found {
			return true
		}
	}
	return false
}

// sources are the Go files of the repository, each flat.
func sources(t *testing.T) (files []string) {
	t.Helper()
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" {
			return err
		}
		content, err := os.ReadFile(path)
		files = append(files, flat(string(content)))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// flat is code without indentation, between two ends of lines.
func flat(code string) string {
	lines := strings.Split(code, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimSpace(line)
	}
	return "\n" + strings.Trim(strings.Join(lines, "\n"), "\n") + "\n"
}

// A snippet that is in no file is noticed, and so is one whose parts are in another order, or in two files.
func TestShown(t *testing.T) {
	t.Parallel()
	files := []string{flat("\ta()\n\tb()\n\tc()\n\td()"), flat("e()")}
	for block, want := range map[string]bool{
		"a()\nb()\n":         true,
		"a()\n// …\nd()\n":   true,
		"a()\n// …\nb()\n":   true,
		"b()\n// …\na()\n":   false,
		"a()\nd()\n":         false,
		"a()\n// …\ne()\n":   false,
		"if x {\n\ta()\n}\n": false,
		"a(\n":               false,
	} {
		if shown(files, block) != want {
			t.Errorf("%q: %v", block, !want)
		}
	}
}
