package core

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// Who imports core gets the standard library, go-redis and what that needs, and nothing else but three small
// packages of this module, and what is core's own.
func TestDependencies(t *testing.T) {
	t.Parallel()
	const self, client, small = "github.com/lockkit/lockkit/core", "github.com/redis/go-redis/v9", "github.com/lockkit/lockkit/internal/"
	deps := func(of string) []string {
		cmd := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", of)
		cmd.Dir = ".."
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("go list %s: %v", of, err)
		}
		return strings.Fields(string(out))
	}
	allowed := append(deps(client), self, small+"faults", small+"gate", small+"join")
	mine := deps("./core")
	if !slices.Contains(mine, self) || !slices.Contains(mine, client) {
		t.Fatalf("go list shows %q", mine)
	}
	for _, pkg := range mine {
		if strings.HasSuffix(pkg, "/coretest") || !slices.Contains(allowed, pkg) && !strings.HasPrefix(pkg, client+"/") && !strings.HasPrefix(pkg, self+"/internal/") {
			t.Errorf("core depends on %s", pkg)
		}
	}
}
