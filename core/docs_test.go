package core

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The documents prove their claims by naming tests: those must exist.
func TestDocumentsNameTestsThatExist(t *testing.T) {
	read := func(pattern string) (text string) {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v, %v", pattern, files, err)
		}
		for _, f := range files {
			b := must(os.ReadFile(f))
			text += string(b)
		}
		return text
	}
	code := read("../*/*_test.go") + read("../*/*/*_test.go") + read("../*/*/*/*_test.go")
	name := regexp.MustCompile("`(Test[A-Z][A-Za-z0-9_]*)(…?)")
	named := name.FindAllStringSubmatch(read("../docs/*.md")+read("../*.md"), -1)
	if len(named) < 30 {
		t.Fatalf("only %d names found", len(named))
	}
	for _, m := range named {
		want := "func " + m[1]
		if m[2] == "" {
			want += "("
		}
		if !strings.Contains(code, want) {
			t.Errorf("no test is called %s%s", m[1], m[2])
		}
	}
}
