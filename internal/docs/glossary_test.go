package docs

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var glossaryWord = regexp.MustCompile(`\*\*([a-z ]+)\*\*`)

// Every page that uses a word of the glossary has a link to it, and no word is explained twice.
func TestGlossaryIsLinked(t *testing.T) {
	t.Parallel()
	words := map[string]bool{}
	for _, r := range rows(text(t, "../../docs/glossary.md")) {
		for _, found := range glossaryWord.FindAllStringSubmatch(r.cells[0], -1) {
			word := found[1]
			if words[word] {
				t.Errorf("docs/glossary.md explains %s twice", word)
			}
			words[word] = true
		}
	}
	if len(words) < 40 {
		t.Errorf("docs/glossary.md explains only %d words", len(words))
	}

	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(pages) < 10 {
		t.Fatal(pages, err)
	}
	for _, page := range append(pages, "../../README.md", "../../ARCHITECTURE.md") {
		document := text(t, page)
		if filepath.Base(page) == "glossary.md" || strings.Contains(document, "glossary.md") {
			continue
		}
		for word := range words {
			if regexp.MustCompile(`\b` + word + `s?\b`).MatchString(document) {
				t.Errorf("%s uses %q, and has no link to the glossary", page, word)
				break
			}
		}
	}
}
