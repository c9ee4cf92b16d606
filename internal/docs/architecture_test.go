package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// maxArchitecture is the greatest number of lines of ARCHITECTURE.md.
const maxArchitecture = 200

var namedFunc = regexp.MustCompile("`([a-z][A-Za-z0-9_/]*\\.go):([A-Za-z0-9_.]+)`")

// Every function and method that ARCHITECTURE.md names, as `dir/file.go:Func` or `dir/file.go:Type.Method`, is declared
// in that file.
func TestArchitecture(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile("../../ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	document := string(content)
	if lines := strings.Count(document, "\n"); lines > maxArchitecture {
		t.Errorf("ARCHITECTURE.md has %d lines, more than %d", lines, maxArchitecture)
	}

	declared := map[string]map[string]bool{} // by file
	found := namedFunc.FindAllStringSubmatch(document, -1)
	for _, name := range found {
		file, function := name[1], name[2]
		if declared[file] == nil {
			declared[file] = declaredFuncs(t, filepath.Join("../..", file))
		}
		if !declared[file][function] {
			t.Errorf("ARCHITECTURE.md: %s does not declare %s", file, function)
		}
	}
	if len(found) < 20 {
		t.Errorf("ARCHITECTURE.md names only %d functions", len(found))
	}
}

// declaredFuncs returns the functions of a file, and its methods as Type.Method.
func declaredFuncs(t *testing.T, path string) map[string]bool {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Error(err)
		return map[string]bool{}
	}

	names := map[string]bool{}
	for _, decl := range file.Decls {
		function, ok := decl.(*ast.FuncDecl)
		if !ok {
			continue
		}
		name := function.Name.Name
		if function.Recv != nil {
			name = receiver(function.Recv.List[0].Type) + "." + name
		}
		names[name] = true
	}
	return names
}

// receiver returns the name of a method's receiver type.
func receiver(expr ast.Expr) string {
	switch expr := expr.(type) {
	case *ast.StarExpr:
		return receiver(expr.X)
	case *ast.IndexExpr: // a generic type
		return receiver(expr.X)
	case *ast.IndexListExpr:
		return receiver(expr.X)
	case *ast.Ident:
		return expr.Name
	}
	return ""
}
