package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var goBlock = regexp.MustCompile("(?ms)^```go\n(.*?)^```$")

// Every block of Go on these pages is part of a file that is compiled, with the same lines except for their
// indentation. A line "// …" stands for lines that the page leaves out.
func TestSnippets(t *testing.T) {
	t.Parallel()
	files := sources(t)
	for page, least := range map[string]int{"../../README.md": 5, "../../docs/migrate.md": 20, "../../docs/recipes.md": 30, "../../docs/hosts.md": 6} {
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

// shown reports whether one of the files has all parts of a block, in the same order.
func shown(files []string, block string) bool {
	var parts []string
	for part := range strings.SplitSeq(flat(block), "\n// …\n") {
		parts = append(parts, "\n"+strings.Trim(part, "\n")+"\n")
	}
	return slices.ContainsFunc(files, func(file string) bool { return hasInOrder(file, parts) })
}

// hasInOrder reports whether a file has all parts, one after another.
func hasInOrder(file string, parts []string) bool {
	for _, part := range parts {
		_, after, found := strings.Cut(file, part)
		if !found {
			return false
		}
		file = "\n" + after // the next part begins with the end of this one's last line
	}
	return true
}

// sources returns the Go files of the repository, each made flat.
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

// flat returns code without indentation, between two newlines.
func flat(code string) string {
	lines := strings.Split(code, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimSpace(line)
	}
	return "\n" + strings.Trim(strings.Join(lines, "\n"), "\n") + "\n"
}

// TestSnippets notices a snippet that is in no file, or whose parts are in another order or in two files.
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

// The code for robfig/cron is in a recipe, whose test runs in each `make test`, and in examples/hosts, which has processes
// and is a module of its own. Both are the same.
func TestRobfigHasOneCode(t *testing.T) {
	t.Parallel()
	body := func(file string) string {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, after, found := strings.Cut(string(content), "\tvar job *cronlock.Job\n")
		if !found {
			t.Fatalf("%s has no variable job", file)
		}
		return after
	}
	recipe, host := body("../../examples/recipes/robfig.go"), body("../../examples/hosts/robfig/lock.go")
	if recipe != host {
		t.Errorf("the recipe has\n%s\nand examples/hosts has\n%s", recipe, host)
	}
}
