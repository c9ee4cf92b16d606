package databases

import (
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/lockkit/lockkit/core/fence"
)

// The databases of the tests are at least as new as the oldest that the README names. The log has their versions.
func TestVersions(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../../../README.md")
	if err != nil {
		t.Fatal(err)
	}

	var versions []string
	for _, on := range backends {
		if on.dialect != fence.SQLite && !hasServers() {
			continue
		}
		version := newBank(t, on).version()
		versions = append(versions, version)

		name, _, _ := strings.Cut(version, " ")
		oldest := regexp.MustCompile(name + ` [0-9.]*[0-9]`).FindString(string(readme))
		if oldest == "" || slices.Compare(numbers(t, version), numbers(t, oldest)) < 0 {
			t.Errorf("the tests run on %s, and the README names %q as the oldest", version, oldest)
		}
	}
	t.Log("databases:", strings.Join(slices.Compact(versions), ", "))
}

// numbers returns the numbers of a version, such as 3, 35 for "SQLite 3.35".
func numbers(t *testing.T, version string) (numbers []int) {
	t.Helper()
	_, version, _ = strings.Cut(version, " ")
	for part := range strings.SplitSeq(version, ".") {
		n, err := strconv.Atoi(part)
		if err != nil {
			t.Fatalf("%q is no version: %v", version, err)
		}
		numbers = append(numbers, n)
	}
	return numbers
}
