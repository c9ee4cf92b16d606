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

// Every link of a document to a file of this repository, or to a heading, leads somewhere.
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
				continue // of another site
			}
			links++
			target := path
			if file != "" {
				target = filepath.Join(filepath.Dir(path), file)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: %s leads nowhere", path, found[1])
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
		t.Errorf("found %d links only", links)
	}
}

// text is a document without its code.
func text(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return code.ReplaceAllString(string(content), "")
}

// anchors are the headings, as GitHub makes links of them.
func anchors(document string) map[string]bool {
	names := map[string]bool{}
	for _, h := range heading.FindAllStringSubmatch(document, -1) {
		names[strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(h[1]), ""), " ", "-")] = true
	}
	return names
}
