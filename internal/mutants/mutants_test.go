package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Each mutant of the lists applies to the code, breaks a guarantee that the document has, and names a test that exists.
func TestLists(t *testing.T) {
	t.Parallel()
	mutants, err := loadLists("../..", "lists")
	if err != nil {
		t.Fatal(err)
	}
	if len(mutants) < 60 {
		t.Errorf("%d mutants, want at least 60", len(mutants))
	}
}

const (
	smallModule = "module small\n\ngo 1.24\n"
	smallCode   = `package small

func Add(a, b int) int {
	sum := a

	sum += b
	return sum
}

func Sub(a, b int) int {
	return a - b
}
`
	smallTest = `package small

import "testing"

func TestAdd(t *testing.T) {
	t.Run("of two", func(t *testing.T) {
		if Add(1, 2) != 3 {
			t.Error("1+2")
		}
	})
}

func TestSub(t *testing.T) { Sub(2, 1) }

func TestSkipped(t *testing.T) { t.Skip() }

func TestBroken(t *testing.T) { t.Error("always") }

func TestPanic(t *testing.T) {
	if Add(1, 0) != 1 {
		done := make(chan int)
		go func() { panic("elsewhere") }()
		<-done
	}
}
`
	smallGuarantees = "### 1. Sums are right\n"
)

// smallRepository writes a module with one guarantee and a list of mutants, and returns its directory.
func smallRepository(t *testing.T, list string) string {
	t.Helper()
	root := t.TempDir()
	for path, content := range map[string]string{
		"go.mod": smallModule, "small.go": smallCode, "small_test.go": smallTest,
		"docs/guarantees.md": smallGuarantees, "lists/small.txt": list,
	} {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// entry returns the entry of a list with the name and the test, for the change of Add to something else.
func entry(name, test, added string) string {
	return "mutant: " + name + "\nguarantee: 1. Sums are right\nfile: small.go\ntest: . " + test +
		"\n- sum += b\n- return sum\n+ " + added + "\n\n"
}

// tried runs the mutants of a list on the small repository, and returns what is printed and the error.
func tried(t *testing.T, list string) (printed string, err error) {
	t.Helper()
	root := smallRepository(t, list)
	mutants, err := loadLists(root, filepath.Join(root, "lists"))
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	g := gate{root: root, atOnce: 2, timeout: 10 * time.Second, out: &out}
	err = g.run(t.Context(), mutants)
	return out.String(), err
}

// A mutant counts as caught only if its test fails: not if the test passes, or is not built.
func TestGate(t *testing.T) {
	t.Parallel()
	printed, err := tried(t, "# sums\n"+
		entry("caught", "TestAdd", "return sum - b")+
		entry("caught by a subtest", "TestAdd/of two", "return 0*sum")+
		entry("caught by a panic", "TestPanic", "return sum + b + 1")+
		entry("survivor", "TestSub", "return sum - b")+
		entry("not Go", "TestAdd", "return summ"))
	if err == nil {
		t.Fatal("a survivor passes the gate")
	}
	for _, want := range []string{
		"1. Sums are right | caught | small.go | caught by TestAdd | ",
		"1. Sums are right | caught by a subtest | small.go | caught by TestAdd | ",
		"1. Sums are right | caught by a panic | small.go | caught by TestPanic | ",
		"1. Sums are right | survivor | small.go | SURVIVED TestSub | ",
		"1. Sums are right | not Go | small.go | IS NOT BUILT | ",
		"  3 of 5  1. Sums are right\n",
	} {
		if !strings.Contains(printed, want) {
			t.Errorf("there is no %q in\n%s", want, printed)
		}
	}
	for _, want := range []string{
		"2 of 5 mutants were not caught", `"survivor": SURVIVED TestSub`, "go run ./internal/mutants -run '^not Go$'", "undefined: summ",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("there is no %q in\n%v", want, err)
		}
	}
}

// A test that runs into its timeout, or runs nothing, catches no mutant.
func TestOutcomesThatCatchNothing(t *testing.T) {
	t.Parallel()
	for why, events := range map[string]string{
		"HANGS": `{"Action":"run","Test":"TestX"}
{"Action":"output","Test":"TestX","Output":"panic: test timed out after 1s\n"}
{"Action":"fail"}
`,
		"RUNS NO TEST": `{"Action":"output","Output":"testing: warning: no tests to run\n"}
{"Action":"pass"}
`,
	} {
		r := judge(&mutant{}, readEvents([]byte(events)), time.Second)
		if r.caught || r.why != why {
			t.Errorf("%s: %+v", why, r)
		}
	}
}

// If every mutant is caught, the gate has no error.
func TestGatePasses(t *testing.T) {
	t.Parallel()
	if printed, err := tried(t, entry("caught", "TestAdd", "return sum - b")); err != nil {
		t.Errorf("%v\n%s", err, printed)
	}
}

// A test that fails, is skipped or matches nothing without a mutant shows nothing with it: no mutant is tried.
func TestTestsThatShowNothing(t *testing.T) {
	t.Parallel()
	var list string
	for _, test := range []string{"TestBroken", "TestSkipped", "TestAdd/of three"} {
		list += entry("for "+test, test, "return sum - b")
	}
	printed, err := tried(t, list)
	if err == nil || strings.Contains(printed, " | ") {
		t.Fatalf("%v\n%s", err, printed)
	}
	for _, want := range []string{
		". fails without any mutant",
		`. has no test that passes for "TestBroken"`,
		`. has no test that passes for "TestSkipped"`,
		`. has no test that passes for "TestAdd/of three"`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("there is no %q in\n%v", want, err)
		}
	}
}

// An entry that no longer fits says what it looked for.
func TestEntriesThatDoNotFit(t *testing.T) {
	t.Parallel()
	good := entry("x", "TestAdd", "return sum - b")
	for name, c := range map[string]struct{ list, want string }{
		"lines that are gone": {strings.Replace(good, "- sum += b", "- sum *= b", 1),
			"small.txt:1: \"x\": small.go must have these lines once, and has them 0 times:\n\tsum *= b\n\treturn sum"},
		"lines that are there twice": {strings.Replace(good, "- sum += b\n- return sum", "- }", 1), "has them 2 times:\n\t}"},
		"no such file":               {strings.Replace(good, "small.go", "gone.go", 1), "gone.go: no such file"},
		"no such guarantee":          {strings.Replace(good, "1. Sums", "2. Sums", 1), `docs/guarantees.md does not have the words "2. Sums are right"`},
		"no such test":               {strings.Replace(good, "TestAdd", "TestAd", 1), ". has no test TestAd"},
		"no such field":              {"quarantee: 1\n" + good, `small.txt:1: "quarantee: 1" is neither a field`},
		"no change":                  {strings.Split(good, "\n-")[0], "it needs all of mutant, guarantee, file, test, and the change"},
		"a name twice":               {good + good, "its name is that of the mutant at small.txt:1"},
	} {
		root := smallRepository(t, c.list)
		_, err := loadLists(root, filepath.Join(root, "lists"))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A package of a nested module is tested in its module.
func TestModuleOf(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for _, dir := range []string{"", "a/nested", "a/nested/b/c"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{"", "a/nested"} {
		if err := os.WriteFile(filepath.Join(root, dir, "go.mod"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for pkg, want := range map[string][2]string{
		".":              {"", "."},
		"./a":            {"", "./a"},
		"./a/nested":     {"a/nested", "."},
		"./a/nested/b/c": {"a/nested", "./b/c"},
	} {
		dir, inside := moduleOf(root, pkg)
		if dir != filepath.Join(root, want[0]) || inside != want[1] {
			t.Errorf("%s: %s, %s", pkg, dir, inside)
		}
	}
}
