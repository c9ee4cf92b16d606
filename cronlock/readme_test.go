package cronlock_test

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/lockkit/lockkit/testutil"
)

// The code in the README is that of Example, line by line, and works.
func TestReadme(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	example, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for i, block := range strings.Split(string(readme), "```") {
		code, isGo := strings.CutPrefix(block, "go\n")
		if i%2 == 0 || !isGo || !strings.Contains(code, "cronlock.") {
			continue
		}
		found++
		if !strings.Contains(string(example), code) {
			t.Errorf("not in example_test.go:\n%s", code)
		}
	}
	if found != 1 {
		t.Errorf("%d blocks of code with cronlock", found)
	}

	node := testutil.StartNode()
	defer node.Close()
	locker := newLocker(node)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := serve(ctx, locker); err != nil {
		t.Error(err)
	}
}
