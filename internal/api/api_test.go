// Package api compares the exported API of each public package with docs/api, and the exported names of core's internal
// packages with docs/api/internal, so that no change goes unnoticed.
package api

import (
	"bytes"
	"flag"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/api instead of comparing with it")

var (
	packages = []string{
		"core", "core/admin", "core/fence", "core/fence/httpfence", "core/fence/redisfence", "core/leader", "core/named", "core/semaphore", "cronlock",
		"cronlock/gocronlock", "httplock", "otel/otellock",
		"queuelock", "testutil", "testutil/history", "testutil/locktest",
	}
	internal = []string{"clock", "goredis", "inside", "node", "queue", "quorum", "slot", "wire"} // in core/internal
)

func TestAPI(t *testing.T) {
	files := map[string]string{}
	for _, name := range packages {
		files[name] = strings.ReplaceAll(name, "/", "-")
	}
	for _, name := range internal {
		files["core/internal/"+name] = "internal/" + name
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		file := filepath.Join("..", "..", "docs", "api", files[name]+".txt")
		got := strings.Join(exported(t, filepath.Join("..", "..", name)), "\n") + "\n"
		if *update {
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}

		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		want := string(content)
		for _, line := range missingLines(want, got) {
			t.Errorf("%s lacks a declaration of %s: %s", name, file, line)
		}
		for _, line := range missingLines(got, want) {
			t.Errorf("%s has a declaration that %s lacks: %s", name, file, line)
		}
		if !t.Failed() && want != got {
			t.Errorf("%s is in another order", file)
		}
	}
	if t.Failed() {
		t.Log("if the change is intended: go test ./internal/api -update; name changes that users see in CHANGELOG.md")
	}
}

// missingLines returns the lines of want that got lacks.
func missingLines(want, got string) (missing []string) {
	lines := strings.Split(got, "\n")
	for line := range strings.Lines(want) {
		line = strings.TrimSuffix(line, "\n")
		if !slices.Contains(lines, line) {
			missing = append(missing, line)
		}
	}
	return missing
}

// exported returns the exported declarations of a package, sorted, without comments and bodies.
func exported(t *testing.T, dir string) (decls []string) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no files in %s: %v", dir, err)
	}

	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}

		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		if !ast.FileExports(file) {
			continue
		}

		for _, decl := range file.Decls {
			for _, part := range parts(decl) {
				var text bytes.Buffer
				if err := printer.Fprint(&text, files, part); err != nil {
					t.Fatal(err)
				}
				decls = append(decls, text.String())
			}
		}
	}

	slices.Sort(decls)
	return slices.Compact(decls) // a declaration that differs between systems may occur twice
}

// parts splits a declaration into one declaration for each name. Constants keep their value if it is a literal.
func parts(decl ast.Decl) (parts []ast.Decl) {
	switch decl := decl.(type) {
	case *ast.FuncDecl:
		decl.Body = nil
		if decl.Recv == nil || ofExported(decl.Recv.List[0].Type) {
			parts = append(parts, decl)
		}
	case *ast.GenDecl:
		for _, spec := range decl.Specs {
			if v, ok := spec.(*ast.ValueSpec); ok {
				parts = append(parts, values(decl.Tok, v)...)
			} else if decl.Tok != token.IMPORT {
				parts = append(parts, &ast.GenDecl{Tok: decl.Tok, Specs: []ast.Spec{spec}})
			}
		}
	}
	return parts
}

// values splits constants or variables that are declared together into one declaration for each.
func values(tok token.Token, v *ast.ValueSpec) (parts []ast.Decl) {
	for i, name := range v.Names {
		one := &ast.ValueSpec{Names: []*ast.Ident{{Name: name.Name}}, Type: v.Type}
		if value, ok := valueOf(v, i); ok && tok == token.CONST {
			one.Values = []ast.Expr{value}
		}
		parts = append(parts, &ast.GenDecl{Tok: tok, Specs: []ast.Spec{one}})
	}
	return parts
}

// valueOf returns the i-th value of a declaration, and whether it is a literal.
func valueOf(v *ast.ValueSpec, i int) (ast.Expr, bool) {
	if i >= len(v.Values) {
		return nil, false
	}
	literal, ok := v.Values[i].(*ast.BasicLit)
	return literal, ok
}

// ofExported reports whether the type of a method's receiver is exported.
func ofExported(receiver ast.Expr) bool {
	if pointer, ok := receiver.(*ast.StarExpr); ok {
		receiver = pointer.X
	}
	name, ok := receiver.(*ast.Ident)
	return ok && name.IsExported()
}
