// Package api holds the exported API of each package to what docs/api has, and the doors of core's own packages to what
// docs/api/internal has, so that no change of either goes unnoticed.
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
	packages = []string{"core", "core/admin", "cronlock", "cronlock/gocronlock", "cronlock/leader", "httplock", "otel/otellock", "queuelock", "testutil", "testutil/history", "testutil/locktest"}
	inCore   = []string{"clock", "goredis", "inside", "node", "queue", "quorum", "wire"} // what core is made of
)

func TestAPI(t *testing.T) {
	files := map[string]string{}
	for _, name := range packages {
		files[name] = strings.ReplaceAll(name, "/", "-")
	}
	for _, name := range inCore {
		files["core/internal/"+name] = "internal/" + name
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		file := filepath.Join("..", "..", "docs", "api", files[name]+".txt")
		is := strings.Join(exported(t, filepath.Join("..", "..", name)), "\n") + "\n"
		if *update {
			if err := os.WriteFile(file, []byte(is), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		was, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range missing(string(was), is) {
			t.Errorf("%s lacks what %s has: %s", name, file, line)
		}
		for _, line := range missing(is, string(was)) {
			t.Errorf("%s has what %s lacks: %s", name, file, line)
		}
		if !t.Failed() && string(was) != is {
			t.Errorf("%s is in another order", file)
		}
	}
	if t.Failed() {
		t.Log("if that is meant: go test ./internal/api -update, and of what users see, say so in CHANGELOG.md")
	}
}

// missing are the lines of the first text that the second has not.
func missing(of, in string) (lines []string) {
	has := strings.Split(in, "\n")
	for line := range strings.Lines(of) {
		if line = strings.TrimSuffix(line, "\n"); !slices.Contains(has, line) {
			lines = append(lines, line)
		}
	}
	return lines
}

// exported are the exported declarations of a package, without comments and bodies, in order.
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
	return slices.Compact(decls) // what differs between systems is there twice
}

// parts splits a declaration into one for each name, with the values of constants that are literals.
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

// values splits constants or variables that are declared together.
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

func valueOf(v *ast.ValueSpec, i int) (ast.Expr, bool) {
	if i >= len(v.Values) {
		return nil, false
	}
	literal, ok := v.Values[i].(*ast.BasicLit)
	return literal, ok
}

// ofExported reports whether a method's receiver is of an exported type.
func ofExported(receiver ast.Expr) bool {
	if pointer, ok := receiver.(*ast.StarExpr); ok {
		receiver = pointer.X
	}
	name, ok := receiver.(*ast.Ident)
	return ok && name.IsExported()
}
