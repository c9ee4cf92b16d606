package core

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// layers are the files of this package from the ground up. A file uses what its own layer and those below declare.
var layers = [][]string{
	{ // what is said to one node, and what it answers
		"class", "client", "clock", "clock_linux", "clock_other", "errors", "join", "key", "lasting", "observer", "policy", "quorum", "script", "validity",
		"verdict", "vote",
	},
	{ // the nodes, and asking them
		"admission", "batch", "breaker", "check", "clockfilter", "ear", "ensemble", "flight", "health", "lane", "line", "longest", "node", "resend", "round", "tally", "voting", "wait",
	},
	{ // one attempt, and the lease that it becomes
		"attempt", "call", "complete", "end", "engine", "extend", "handon", "healthcheck", "lease", "nodestate", "record", "release", "renewal", "spread", "watchdog",
	},
	{ // what is called
		"acquire", "close", "do", "doc", "locker", "option", "pause", "provision", "try",
	},
}

func TestLayers(t *testing.T) {
	paths, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]*ast.File{}
	declares := map[string]string{} // the file, by identifier
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(path, ".go")
		files[name] = file
		for id := range file.Scope.Objects {
			declares[id] = name
		}
	}
	layer := func(file string) int {
		return slices.IndexFunc(layers, func(files []string) bool { return slices.Contains(files, file) })
	}
	uses := 0
	for name, file := range files {
		if layer(name) < 0 {
			t.Errorf("%s.go is in no layer", name)
		}
		for _, id := range file.Unresolved {
			home, ours := declares[id.Name]
			if !ours {
				continue
			}
			uses++
			if layer(home) > layer(name) {
				t.Errorf("%s.go uses %s, which %s.go declares, a layer above", name, id.Name, home)
			}
		}
	}
	if uses < 100 {
		t.Errorf("found %d uses, as if files did not depend on each other", uses)
	}
	for i, files := range layers {
		for _, name := range files {
			if _, err := parser.ParseFile(token.NewFileSet(), name+".go", nil, parser.PackageClauseOnly); err != nil {
				t.Errorf("layer %d: %v", i, err)
			}
		}
	}
}
