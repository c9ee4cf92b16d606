package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var (
	eventTable = regexp.MustCompile("(?m)^\\| `([a-z]+)`: .* \\| what happened \\|")
	eventRow   = regexp.MustCompile("^\\| `([a-z_]+)` \\| [^|]+ \\| [^|]+ \\|$")
)

// The manual explains every event kind of every adapter, and no other word.
func TestEventsAreExplained(t *testing.T) {
	t.Parallel()
	want := map[string]bool{}
	sources := map[string]string{ // by folder
		"cronlock":    "cronlock",
		"core/leader": "leader",
		"queuelock":   "queuelock",
		"httplock":    "httplock",
	}
	for dir, source := range sources {
		words := eventKinds(t, filepath.Join("../..", dir))
		if len(words) == 0 {
			t.Errorf("%s has no constants of type core.EventKind", dir)
		}
		for _, word := range words {
			want[source+" "+word] = true
		}
	}

	has := map[string]bool{}
	_, section, _ := strings.Cut(text(t, "../../docs/operations.md"), "\n### Events\n")
	section, _, _ = strings.Cut(section, "\n### ")
	source := ""
	for line := range strings.Lines(section) {
		line = strings.TrimSpace(line)
		if head := eventTable.FindStringSubmatch(line); head != nil {
			source = head[1]
		} else if row := eventRow.FindStringSubmatch(line); row != nil {
			has[source+" "+row[1]] = true
		}
	}

	for _, word := range slices.Sorted(maps.Keys(want)) {
		if !has[word] {
			t.Errorf("docs/operations.md does not explain %s", word)
		}
	}
	for _, word := range slices.Sorted(maps.Keys(has)) {
		if !want[word] {
			t.Errorf("docs/operations.md explains %s, which does not exist", word)
		}
	}
}

// eventKinds returns the values of a package's constants of type core.EventKind.
func eventKinds(t *testing.T, dir string) (words []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			if spec, ok := n.(*ast.ValueSpec); ok {
				words = append(words, kindsOf(t, spec)...)
			}
			return true
		})
	}
	return words
}

// kindsOf returns the values in a declaration of constants of type core.EventKind.
func kindsOf(t *testing.T, spec *ast.ValueSpec) (words []string) {
	t.Helper()
	if kind, ok := spec.Type.(*ast.SelectorExpr); !ok || kind.Sel.Name != "EventKind" {
		return nil
	}
	for _, value := range spec.Values {
		if word, ok := value.(*ast.BasicLit); ok {
			unquoted, err := strconv.Unquote(word.Value)
			if err != nil {
				t.Fatal(err)
			}
			words = append(words, unquoted)
		}
	}
	return words
}
