// Package docs checks the documents.
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
	link    = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ +(.*)$`)
	code    = regexp.MustCompile("(?ms)^```.*?^```$")
	dropped = regexp.MustCompile(`[^\pL\pN _-]`)
)

// The target of every link to a file of this repository, or to a heading, exists.
func TestLinks(t *testing.T) {
	t.Parallel()
	const root = "../.."
	links := 0
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".md" {
			return err
		}
		for _, found := range link.FindAllStringSubmatch(text(t, path), -1) {
			file, anchor, _ := strings.Cut(found[1], "#")
			if strings.Contains(file, ":") {
				continue // a link to another site
			}

			links++
			target := path
			if file != "" {
				target = filepath.Join(filepath.Dir(path), file)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: %s has no target", path, found[1])
			} else if anchor != "" && !anchors(text(t, target))[anchor] {
				t.Errorf("%s: %s: no such heading", path, found[1])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if links < 20 {
		t.Errorf("found only %d links", links)
	}
}

// The README is one page, and docs/README.md lists all others.
func TestPages(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(string(readme), "\n"); lines > 160 {
		t.Errorf("README.md has %d lines, more than 160", lines)
	}

	list := text(t, "../../docs/README.md")
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(pages) < 3 {
		t.Fatal(pages, err)
	}
	for _, page := range pages {
		if name := filepath.Base(page); name != "README.md" && !strings.Contains(list, "]("+name+")") {
			t.Errorf("docs/README.md does not list %s", name)
		}
	}
}

// text returns a document without its code blocks.
func text(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return code.ReplaceAllString(string(content), "")
}

// anchors returns the anchors that GitHub makes from the headings of a document.
func anchors(document string) map[string]bool {
	names := map[string]bool{}
	for _, h := range heading.FindAllStringSubmatch(document, -1) {
		name := dropped.ReplaceAllString(strings.ToLower(h[1]), "")
		names[strings.ReplaceAll(name, " ", "-")] = true
	}
	return names
}
