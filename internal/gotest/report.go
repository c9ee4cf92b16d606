package main

import (
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// An event is a line of go test -json; see go doc test2json.
type event struct {
	Action     string
	Package    string
	ImportPath string // in place of Package, of what the compiler says
	Test       string
	Output     string
}

// A report prints events as people read them, and remembers the failures.
type report struct {
	out      io.Writer
	verbose  bool
	packages map[string]*tested
	failed   []failure
}

// A tested package has the output of its tests, by their names, until it is known whether they failed. The output of the
// package itself has no name.
type tested struct {
	output  map[string][]string
	running map[string]bool
	shuffle string // the seed of the order of its tests, "" if they are not shuffled
	failed  bool   // one of its tests has failed
}

// A failure is a test that failed, or a package if Test is empty.
type failure struct {
	Package, Test, shuffle string
	why                    string // of a package
}

func newReport(out io.Writer, verbose bool) *report {
	return &report{out: out, verbose: verbose, packages: map[string]*tested{}}
}

func (r *report) of(pkg string) *tested {
	p := r.packages[pkg]
	if p == nil {
		p = &tested{output: map[string][]string{}, running: map[string]bool{}}
		r.packages[pkg] = p
	}
	return p
}

var shuffled = regexp.MustCompile(`^-test\.shuffle (\d+)`)

// noise is what -v prints of each test beside its own output.
var noise = regexp.MustCompile(`^(=== | *--- PASS)`)

func (r *report) take(e event) {
	p := r.of(e.Package)
	switch e.Action {
	case "build-output":
		fmt.Fprint(r.out, e.Output)
	case "run":
		p.running[e.Test] = true
	case "output":
		r.output(p, e)
	case "pass", "skip":
		r.passed(p, e)
	case "fail":
		r.fails(p, e)
	}
}

func (r *report) output(p *tested, e event) {
	if m := shuffled.FindStringSubmatch(e.Output); m != nil {
		p.shuffle = m[1]
	}
	p.output[e.Test] = append(p.output[e.Test], e.Output)
	if r.verbose {
		r.print(e.Output)
	}
}

// print prints lines of output, but not those that only name a test that runs or has passed.
func (r *report) print(lines ...string) {
	for _, line := range lines {
		if !noise.MatchString(line) {
			fmt.Fprint(r.out, line)
		}
	}
}

func (r *report) passed(p *tested, e event) {
	delete(p.running, e.Test)
	isPackage := e.Test == ""
	if isPackage && !r.verbose {
		for _, line := range p.output[""] {
			isVerdict := strings.HasPrefix(line, "ok ") || strings.HasPrefix(line, "? ")
			if isVerdict {
				fmt.Fprint(r.out, line)
			}
		}
	}
	delete(p.output, e.Test)
}

func (r *report) fails(p *tested, e event) {
	delete(p.running, e.Test)
	if !r.verbose {
		r.print(p.output[e.Test]...)
	}
	delete(p.output, e.Test)
	if e.Test != "" {
		p.failed = true
		r.failed = append(r.failed, failure{Package: e.Package, Test: e.Test, shuffle: p.shuffle})
		return
	}
	if p.failed {
		return
	}

	// No test failed, so the package did: it was not built, or the process ended under its tests.
	names := slices.Sorted(maps.Keys(p.running))
	if !r.verbose {
		for _, name := range names {
			r.print(p.output[name]...)
		}
	}
	why := "it was not built, or ended before its first test"
	if len(names) > 0 {
		why = "the process ended while these ran: " + strings.Join(names, ", ")
	}
	r.failed = append(r.failed, failure{Package: e.Package, shuffle: p.shuffle, why: why})
}

// failures lists what failed, each with the command that repeats it; "" if nothing did. A test that failed because of its
// subtests is not listed beside them.
func (r *report) failures(args []string) string {
	var b strings.Builder
	for _, f := range r.failed {
		if slices.ContainsFunc(r.failed, f.isOutside) {
			continue
		}
		if b.Len() == 0 {
			b.WriteString("\nFAILED, and how to repeat it:\n")
		}
		b.WriteString(f.text(args))
	}
	return b.String()
}

// isOutside reports whether f is a test, and g a subtest of it.
func (f failure) isOutside(g failure) bool {
	return f.Test != "" && g.Package == f.Package && strings.HasPrefix(g.Test, f.Test+"/")
}

func (f failure) text(args []string) string {
	what := f.Package + " " + f.Test
	if f.Test == "" {
		what = f.Package + ": " + f.why
	}
	return fmt.Sprintf("  %s\n    go test %s\n", what, strings.Join(f.command(args), " "))
}

// command returns the arguments of the go test that repeats the failure: the same flags, for this test only. The package
// stands last, before the flags of the test itself.
func (f failure) command(args []string) []string {
	flags, own := keptFlags(args)
	if f.shuffle != "" {
		flags = append(flags, "-shuffle="+f.shuffle)
	}
	flags = append(flags, "-count=1")
	if f.Test != "" {
		var parts []string
		for part := range strings.SplitSeq(f.Test, "/") {
			parts = append(parts, "^"+regexp.QuoteMeta(part)+"$")
		}
		flags = append(flags, "-run", quote(strings.Join(parts, "/")))
	}
	return slices.Concat(flags, []string{f.Package}, own)
}

// keptFlags returns the flags of args that a repetition keeps: flags are those of go test, own those of the test itself.
func keptFlags(args []string) (flags, own []string) {
	for len(args) > 0 {
		name, _, hasValue := strings.Cut(args[0], "=")
		size := 1
		if takesValue[name] && !hasValue {
			size = min(2, len(args))
		}
		flag := args[:size]
		args = args[size:]
		isPackage := !strings.HasPrefix(name, "-")
		if isPackage || isReplaced[name] {
			continue
		}
		for _, arg := range flag {
			if strings.Contains(name, ".") {
				own = append(own, quote(arg))
			} else {
				flags = append(flags, quote(arg))
			}
		}
	}
	return flags, own
}

// isReplaced are the flags that command sets itself, or leaves out.
var isReplaced = map[string]bool{"-shuffle": true, "-run": true, "-v": true, "-count": true}

// takesValue are the flags in this project's commands that may have their value in the next argument.
var takesValue = map[string]bool{
	"-timeout":  true,
	"-p":        true,
	"-parallel": true,
	"-tags":     true,
	"-run":      true,
	"-count":    true,
	"-skip":     true,
	"-shuffle":  true,
}

var plain = regexp.MustCompile(`^[\w./,:=@%+-]+$`)

// quote returns the argument as a shell takes it.
func quote(arg string) string {
	if plain.MatchString(arg) {
		return arg
	}
	return "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
}
