package otellock

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"testing"

	"github.com/lockkit/lockkit/core"
)

// The metrics begin at zero for every reason for which core loses a lease. A new reason of core must be added to
// lossReasons.
func TestLossReasonsAreComplete(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "../../core/errors.go", nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}

	want := []core.LossReason{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, isValue := n.(*ast.ValueSpec)
		if !isValue {
			return true
		}
		name, isName := spec.Type.(*ast.Ident)
		if !isName || name.Name != "LossReason" {
			return true
		}
		word, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, core.LossReason(word))
		return true
	})

	// Only a completion fails for the first of these reasons, and only a store for the second. They end no lease.
	want = slices.DeleteFunc(want, func(r core.LossReason) bool { return r == core.LossForgotten || r == core.LossStale })
	got := slices.Sorted(slices.Values(lossReasons))
	slices.Sort(want)
	if len(want) < 6 || !slices.Equal(got, want) {
		t.Errorf("lossReasons are %q, core has %q", got, want)
	}
}
