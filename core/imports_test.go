package core

import (
	"errors"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// floors lists the packages that core is made of, from the ground up, and how many names each may export. A package
// imports only packages of lower floors.
var floors = [][]floor{
	{{"clock", 25}, {"goredis", 25}, {"wire", 45}},
	{{"quorum", 14}, {"slot", 10}},
	{{"node", 25}},
	{{"queue", 15}},
	{{"inside", 10}},
}

type floor struct {
	name string
	door int
}

// Each package is on a floor, imports only packages of lower floors, and exports few names.
func TestHouse(t *testing.T) {
	t.Parallel()
	var found []string
	for _, dir := range must(filepath.Glob("internal/*")) {
		if name := filepath.Base(dir); name != "coretest" { // only tests import it
			found = append(found, name)
		}
	}

	var below []string
	for _, f := range floors {
		for _, p := range f {
			if !slices.Contains(found, p.name) {
				t.Errorf("there is no package %s", p.name)
				continue
			}
			leansOn(t, p.name, below)
			if n := doorOf(t, p.name); n > p.door {
				t.Errorf("%s exports %d names, %d at most", p.name, n, p.door)
			}
		}
		for _, p := range f {
			below = append(below, p.name)
		}
	}

	for _, name := range found {
		if !slices.Contains(below, name) {
			t.Errorf("%s is on no floor", name)
		}
	}

	// Core may import all of them, and admin, semaphore, named, leader and fence may import core. Fence and its
	// subpackages may also import semaphore, because they check permits. Of core's packages, only
	// lockctl imports admin and fence.
	for dir, above := range map[string][]string{
		".": {}, "admin": {"core"}, "semaphore": {"core"}, "named": {"core"}, "leader": {"core"}, "lockctl": {"core", "core/admin", "core/fence"},
		"fence": {"core", "core/semaphore", holder}, "fence/internal/holder": {"core", "core/semaphore"},
		"fence/redisfence": {"core", "core/semaphore", holder}, "fence/httpfence": {"core", "core/fence", holder},
	} {
		for _, imported := range must(build.ImportDir(dir, 0)).Imports {
			if other, ours := strings.CutPrefix(imported, module); ours && strings.HasPrefix(other, "core") && !strings.HasPrefix(other, "core/internal/") && !slices.Contains(above, other) {
				t.Errorf("%s imports %s, which is not below it", dir, imported)
			}
		}
	}
}

// Package fence and its subpackages import only core, core/semaphore and the standard library: no driver of a database. Only
// redisfence imports a client of Redis.
func TestImportsOfFence(t *testing.T) {
	t.Parallel()
	for dir, client := range map[string]string{
		"fence": "", "fence/internal/holder": "", "fence/httpfence": "", "fence/redisfence": "github.com/redis/go-redis/v9",
	} {
		imports := must(build.ImportDir(dir, 0)).Imports
		for _, imported := range imports {
			first, _, _ := strings.Cut(imported, "/")
			ours := []string{module + "core", module + "core/semaphore", module + "core/fence", module + holder}
			if strings.Contains(first, ".") && !slices.Contains(ours, imported) && imported != client {
				t.Errorf("%s imports %s", dir, imported)
			}
		}
		if !slices.Contains(imports, module+"core") {
			t.Errorf("%s imports %q", dir, imports)
		}
	}
}

const (
	module = "github.com/lockkit/lockkit/"
	holder = "core/fence/internal/holder"
)

// leansOn fails the test if a package imports a package of core that is not below it.
func leansOn(t *testing.T, name string, below []string) {
	t.Helper()
	for _, imported := range must(build.ImportDir(filepath.Join("internal", name), 0)).Imports {
		other, ours := strings.CutPrefix(imported, module+"core/internal/")
		if strings.HasPrefix(imported, module+"core") && !ours || ours && !slices.Contains(below, other) {
			t.Errorf("%s imports %s, which is not below it", name, imported)
		}
	}
}

// doorOf returns the number of names that a package exports. Methods do not count, and of a group of constants only the
// first does.
func doorOf(t *testing.T, name string) (n int) {
	t.Helper()
	for _, file := range must(filepath.Glob(filepath.Join("internal", name, "*.go"))) {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f := must(parser.ParseFile(token.NewFileSet(), file, nil, 0))
		for id, o := range f.Scope.Objects {
			// Only the first of a group of constants counts.
			if ast.IsExported(id) && !(o.Kind == ast.Con && o.Data.(int) > 0) {
				n++
			}
		}
	}
	return n
}

// Core depends on the standard library, on go-redis and what that needs, on five small packages of this module, and on
// its own internal packages. It depends on nothing else.
func TestDependencies(t *testing.T) {
	t.Parallel()
	const self, client, small = "github.com/lockkit/lockkit/core", "github.com/redis/go-redis/v9", "github.com/lockkit/lockkit/internal/"
	deps := func(of string) []string {
		cmd := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", of)
		cmd.Dir = ".."
		out, err := cmd.Output()
		if exit, failed := errors.AsType[*exec.ExitError](err); failed {
			t.Fatalf("go list %s: %v: %s", of, err, exit.Stderr)
		} else if err != nil {
			t.Fatalf("go list %s: %v", of, err)
		}
		return strings.Fields(string(out))
	}
	allowed := append(deps(client), self, small+"callback", small+"faults", small+"gate", small+"join", small+"stall")
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
