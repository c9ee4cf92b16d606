package tick

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// Who imports the package gets core, the electors, and three small packages of this module; no gocron, and nothing of hosts.
func TestDependencies(t *testing.T) {
	t.Parallel()
	const kit = "github.com/lockkit/lockkit/"
	imports := func(what, of string) []string {
		cmd := exec.Command("go", "list", "-deps", "-f", what, of)
		cmd.Dir = "../.."
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("go list %s: %v", of, err)
		}
		return strings.Fields(string(out))
	}
	const names = "{{if not .Standard}}{{.ImportPath}}{{end}}"
	allowed := append(imports(names, "./core"), kit+"cronlock/tick", kit+"cronlock/leader", kit+"internal/faults", kit+"internal/gate", kit+"internal/pause")
	mine := imports(names, "./cronlock/tick")
	if !slices.Contains(mine, kit+"cronlock/tick") || !slices.Contains(mine, kit+"core") {
		t.Fatalf("go list shows %q", mine)
	}
	for _, pkg := range mine {
		if !slices.Contains(allowed, pkg) {
			t.Errorf("the package depends on %s", pkg)
		}
	}
	direct := imports(`{{if eq .ImportPath "`+kit+`cronlock/tick"}}{{join .Imports " "}}{{end}}`, "./cronlock/tick")
	for _, pkg := range direct {
		if strings.Contains(pkg, ".") && !strings.HasPrefix(pkg, kit) {
			t.Errorf("the package imports %s, which core is there for", pkg)
		}
	}
}
