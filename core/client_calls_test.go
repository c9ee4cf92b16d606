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

// All calls that read what a server sends are in one file of package goredis, where a panic is contained. A panic in a
// call elsewhere would end the process.
func TestCallsIntoTheClient(t *testing.T) {
	t.Parallel()
	reads := []string{"Process", "Pipeline", "Exec", "ReceiveTimeout", "ReceiveMessage", "SSubscribe", "PSubscribe", "MasterForKey",
		"ReloadState", "PoolStats", "Do", "Eval", "EvalSha", "Info", "Time", "Get"}
	var files []string
	for _, pattern := range []string{"*.go", "admin/*.go", "internal/*/*.go"} {
		files = append(files, must(filepath.Glob(pattern))...)
	}

	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") || strings.HasPrefix(file, "internal/coretest/") || file == "internal/goredis/calls.go" {
			continue
		}
		f := must(parser.ParseFile(token.NewFileSet(), file, nil, 0))
		if !slices.ContainsFunc(f.Imports, func(i *ast.ImportSpec) bool { return strings.Contains(i.Path.Value, "redis/go-redis") }) {
			continue // it has no client
		}

		ast.Inspect(f, func(n ast.Node) bool {
			call, is := n.(*ast.CallExpr)
			if !is {
				return true
			}
			method, is := call.Fun.(*ast.SelectorExpr)
			if !is || !slices.Contains(reads, method.Sel.Name) {
				return true
			}
			if of, is := method.X.(*ast.Ident); !is || of.Name != "goredis" && of.Name != "sync" && of.Name != "batchPool" {
				t.Errorf("%s calls %s", file, method.Sel.Name)
			}
			return true
		})
	}
}
