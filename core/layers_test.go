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
		"class", "client", "errors", "finding", "held", "key", "lasting", "observer", "policy", "quorum", "rights", "script", "stored", "times", "unfit", "validity",
		"verdict", "vote",
	},
	{ // the nodes, and asking them
		"admission", "batch", "breaker", "check", "clockfilter", "ear", "ensemble", "examine", "flight", "guard", "health", "lane", "longest", "node", "resend", "round", "tally", "voting", "wait",
	},
	{ // one attempt, and the lease that it becomes
		"attempt", "call", "complete", "end", "engine", "extend", "handon", "lease", "line", "nodestate", "record", "release", "renewal", "result", "watchdog",
	},
	{ // what is called
		"acquire", "close", "diagnose", "diagnose_rules", "dial", "do", "doc", "inspect", "locker",
		"option", "pause", "provision", "ready", "revoke", "tool", "try",
	},
}

func TestLayers(t *testing.T) {
	files, declares := parsed(t)
	uses := 0
	for name, file := range files {
		if layerOf(name) < 0 {
			t.Errorf("%s.go is in no layer", name)
		}
		for _, id := range file.Unresolved {
			home, ours := declares[id.Name]
			if !ours {
				continue
			}
			uses++
			if layerOf(home) > layerOf(name) {
				t.Errorf("%s.go uses %s, which %s.go declares, a layer above", name, id.Name, home)
			}
		}
	}
	if uses < 100 {
		t.Errorf("found %d uses, as if files did not depend on each other", uses)
	}
	for i, names := range layers {
		for _, name := range names {
			if files[name] == nil {
				t.Errorf("layer %d: there is no %s.go", i, name)
			}
		}
	}
}

// parsed are the files of this package but for tests, by name, and which of them declares an identifier.
func parsed(t *testing.T) (files map[string]*ast.File, declares map[string]string) {
	t.Helper()
	files, declares = map[string]*ast.File{}, map[string]string{}
	for _, path := range must(filepath.Glob("*.go")) {
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
	return files, declares
}

func layerOf(file string) int {
	return slices.IndexFunc(layers, func(files []string) bool { return slices.Contains(files, file) })
}
