package main

import (
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// An event is a line of the output of go test -json; see go doc test2json.
type event struct {
	Action     string
	Package    string
	ImportPath string // in place of Package, for messages of the compiler
	Test       string
	Output     string
}

// A report prints events in the form of go test, and remembers the failures.
type report struct {
	out      io.Writer
	verbose  bool
	packages map[string]*testedPackage
	failed   []failure
}

// A testedPackage holds the output of tests that have not ended yet, by their names. The output of the package itself
// has the name "".
type testedPackage struct {
	output  map[string][]string
	running map[string]bool // the tests that have not ended yet
	shuffle string          // the seed of the order of its tests, "" if they are not shuffled
	failed  bool            // one of its tests has failed
}

// A failure is a test that failed, or a package if Test is empty.
type failure struct {
	Package, Test, shuffle string
	reason                 string // of a package
	detectorCrashed        bool   // the race detector ended the process of a package
}

func newReport(out io.Writer, verbose bool) *report {
	return &report{out: out, verbose: verbose, packages: map[string]*testedPackage{}}
}

// packageOf returns the testedPackage of that name. It adds one if there is none.
func (r *report) packageOf(name string) *testedPackage {
	p := r.packages[name]
	if p == nil {
		p = &testedPackage{output: map[string][]string{}, running: map[string]bool{}}
		r.packages[name] = p
	}
	return p
}

// shuffled matches the line in which go test prints the seed of the order of tests.
var shuffled = regexp.MustCompile(`^-test\.shuffle (\d+)`)

// detectorCrash is what the race detector prints before it ends the process because of a fault of its own.
const detectorCrash = "ThreadSanitizer: CHECK failed"

// noise matches the lines that -v adds to a test's own output.
var noise = regexp.MustCompile(`^(=== | *--- PASS)`)

// handle updates the report with an event.
func (r *report) handle(e event) {
	p := r.packageOf(e.Package)
	switch e.Action {
	case "build-output":
		fmt.Fprint(r.out, e.Output)
	case "run":
		p.running[e.Test] = true
	case "output":
		r.onOutput(p, e)
	case "pass", "skip":
		r.onPass(p, e)
	case "fail":
		r.onFail(p, e)
	}
}

// onOutput keeps a line of output until its test has ended. With -v it also prints the line.
func (r *report) onOutput(p *testedPackage, e event) {
	if m := shuffled.FindStringSubmatch(e.Output); m != nil {
		p.shuffle = m[1]
	}
	p.output[e.Test] = append(p.output[e.Test], e.Output)
	if r.verbose {
		r.print(e.Output)
	}
}

// print prints lines of output, except for those that only name a test that runs or has passed.
func (r *report) print(lines ...string) {
	for _, line := range lines {
		if !noise.MatchString(line) {
			fmt.Fprint(r.out, line)
		}
	}
}

// onPass discards the output of a test or package that passed, except for the package's verdict, and for a data race: a race
// that is detected while no test runs fails the package, and stands in the output of a test that passed.
func (r *report) onPass(p *testedPackage, e event) {
	delete(p.running, e.Test)

	isPackage := e.Test == ""
	output := strings.Join(p.output[e.Test], "")
	if !isPackage && strings.Contains(output, "WARNING: DATA RACE") {
		p.output[""] = append(p.output[""], output)
	}
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

// onFail prints the output of a test or package that failed, and records the failure. A package fails if one of its
// tests does; then only the test is recorded.
func (r *report) onFail(p *testedPackage, e event) {
	delete(p.running, e.Test)
	output := strings.Join(p.output[e.Test], "")
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

	// No test failed, so the package did: it was not built, the process ended under its tests, or there was a race.
	names := slices.Sorted(maps.Keys(p.running))
	if !r.verbose {
		for _, name := range names {
			r.print(p.output[name]...)
		}
	}

	// A race that is reported after the end of a test stands in the output of that test.
	if !r.verbose {
		for _, name := range slices.Sorted(maps.Keys(p.output)) {
			late := strings.Join(p.output[name], "")
			if strings.Contains(late, "WARNING: DATA RACE") {
				r.print(p.output[name]...)
			}
		}
	}

	// The process may have been in any of its tests, or in none.
	detectorCrashed := strings.Contains(output, detectorCrash)
	for _, lines := range p.output {
		detectorCrashed = detectorCrashed || strings.Contains(strings.Join(lines, ""), detectorCrash)
	}

	reason := "it was not built, or ended before its first test"
	switch {
	case len(names) > 0:
		reason = "the process ended while these ran: " + strings.Join(names, ", ")
	case strings.Contains(output, "race detected outside of test execution"):
		reason = "a data race was detected after its test had passed"
	}

	r.failed = append(r.failed, failure{Package: e.Package, shuffle: p.shuffle, reason: reason, detectorCrashed: detectorCrashed})
}

// takeCrashed removes the packages from the report whose processes the race detector has ended, and returns them. A
// package with a test that failed before is not among them.
func (r *report) takeCrashed() []failure {
	var crashed, others []failure
	for _, f := range r.failed {
		if f.detectorCrashed {
			crashed = append(crashed, f)
			delete(r.packages, f.Package)
		} else {
			others = append(others, f)
		}
	}

	r.failed = others
	return crashed
}

// failures returns the list of failures, each with the command that repeats it, or "" if there are none. A test that
// failed because of its subtests is not listed beside them.
func (r *report) failures(args []string) string {
	var b strings.Builder
	for _, f := range r.failed {
		if slices.ContainsFunc(r.failed, f.contains) {
			continue
		}

		if b.Len() == 0 {
			b.WriteString("\nFAILED, and how to repeat it:\n")
		}
		b.WriteString(f.text(args))
	}

	return b.String()
}

// contains reports whether f is a test and g is one of its subtests.
func (f failure) contains(g failure) bool {
	return f.Test != "" && g.Package == f.Package && strings.HasPrefix(g.Test, f.Test+"/")
}

// text returns the two lines of the list for f.
func (f failure) text(args []string) string {
	name := f.Package + " " + f.Test
	if f.Test == "" {
		name = f.Package + ": " + f.reason
	}

	command := f.command(args)
	for i, arg := range command {
		command[i] = quote(arg)
	}
	return fmt.Sprintf("  %s\n    go test %s\n", name, strings.Join(command, " "))
}

// command returns the arguments of the go test that repeats the failure: the same flags, for this test only. The
// package comes last, before the flags of the test itself.
func (f failure) command(args []string) []string {
	flags, testFlags := keptFlags(args)
	if f.shuffle != "" {
		flags = append(flags, "-shuffle="+f.shuffle)
	}

	flags = append(flags, "-count=1")

	// Each part is matched as a whole: TestA must not run TestAB.
	if f.Test != "" {
		var parts []string
		for part := range strings.SplitSeq(f.Test, "/") {
			parts = append(parts, "^"+regexp.QuoteMeta(part)+"$")
		}
		flags = append(flags, "-run", strings.Join(parts, "/"))
	}

	return slices.Concat(flags, []string{f.Package}, testFlags)
}

// keptFlags returns the arguments that a repetition keeps: the flags of go test, and the flags of the test itself, which
// have a dot in their names.
func keptFlags(args []string) (flags, testFlags []string) {
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
		if strings.Contains(name, ".") {
			testFlags = append(testFlags, flag...)
		} else {
			flags = append(flags, flag...)
		}
	}

	return flags, testFlags
}

// isReplaced has the flags that command sets itself, or leaves out.
var isReplaced = map[string]bool{"-shuffle": true, "-run": true, "-v": true, "-count": true}

// takesValue has the flags in this project's commands that may have their value in the next argument.
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

// plain matches the arguments that need no quotes in a shell.
var plain = regexp.MustCompile(`^[\w./,:=@%+-]+$`)

// quote returns the argument as it must be written in a shell.
func quote(arg string) string {
	if plain.MatchString(arg) {
		return arg
	}
	return "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
}
