package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var optionLine = regexp.MustCompile(`(?m)^func (\w+)\(.*\) (?:Option|CallOption|ReleaseOption|JobOption|KeyFunc|Schedule)$`)

// Every option of the packages that users import has an example.
func TestOptionsHaveExamples(t *testing.T) {
	t.Parallel()
	for _, pkg := range []string{"core", "cronlock", "queuelock", "httplock"} {
		api := text(t, "../../docs/api/"+pkg+".txt")
		files, err := filepath.Glob("../../" + pkg + "/example*_test.go")
		if err != nil {
			t.Fatal(err)
		}

		var examples strings.Builder
		for _, file := range files {
			source, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			examples.WriteString(string(source))
		}

		options := optionLine.FindAllStringSubmatch(api, -1)
		if len(options) < 4 {
			t.Errorf("%s has only %d options", pkg, len(options))
		}
		for _, option := range options {
			example := regexp.MustCompile(`(?m)^func Example` + option[1] + `\(\)`)
			if !example.MatchString(examples.String()) {
				t.Errorf("%s.%s has no example", pkg, option[1])
			}
		}
	}
}
