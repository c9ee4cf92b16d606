package main

import (
	"io"
	"os"
	"strings"
	"testing"
)

func reported(t *testing.T, verbose bool, args []string, lines string) (printed, failures string) {
	t.Helper()
	var out strings.Builder
	r := newReport(&out, verbose)
	if err := r.read(strings.NewReader(lines)); err != nil {
		t.Fatal(err)
	}
	return out.String(), r.failures(args)
}

func TestReport(t *testing.T) {
	t.Parallel()
	const failing = `{"Action":"output","Package":"m/a","Output":"-test.shuffle 7\n"}
{"Action":"run","Package":"m/a","Test":"TestX"}
{"Action":"output","Package":"m/a","Test":"TestX","Output":"=== RUN   TestX\n"}
{"Action":"run","Package":"m/a","Test":"TestX/one_(more)"}
{"Action":"output","Package":"m/a","Test":"TestX/one_(more)","Output":"    x_test.go:1: broken\n"}
{"Action":"fail","Package":"m/a","Test":"TestX/one_(more)"}
{"Action":"fail","Package":"m/a","Test":"TestX"}
{"Action":"run","Package":"m/a","Test":"TestY"}
{"Action":"output","Package":"m/a","Test":"TestY","Output":"quiet\n"}
{"Action":"pass","Package":"m/a","Test":"TestY"}
{"Action":"output","Package":"m/a","Output":"FAIL\tm/a\t1.0s\n"}
{"Action":"fail","Package":"m/a"}
`
	const ended = `{"Action":"run","Package":"m/b","Test":"TestZ"}
{"Action":"output","Package":"m/b","Test":"TestZ","Output":"panic: test timed out\n"}
{"Action":"fail","Package":"m/b"}
`
	const passing = `{"Action":"output","Package":"m/c","Output":"PASS\n"}
{"Action":"output","Package":"m/c","Output":"ok  \tm/c\t0.1s\n"}
{"Action":"pass","Package":"m/c"}
`
	const racing = `{"Action":"run","Package":"m/e","Test":"TestR"}
{"Action":"output","Package":"m/e","Test":"TestR","Output":"WARNING: DATA RACE\n"}
{"Action":"output","Package":"m/e","Test":"TestR","Output":"Read at e.go:7\n"}
{"Action":"pass","Package":"m/e","Test":"TestR"}
{"Action":"output","Package":"m/e","Output":"testing: race detected outside of test execution\n"}
{"Action":"fail","Package":"m/e"}
`
	const racingLate = `{"Action":"run","Package":"m/f","Test":"TestS"}
{"Action":"pass","Package":"m/f","Test":"TestS"}
{"Action":"output","Package":"m/f","Test":"TestS","Output":"WARNING: DATA RACE\n"}
{"Action":"output","Package":"m/f","Test":"TestS","Output":"Read at f.go:7\n"}
{"Action":"output","Package":"m/f","Output":"testing: race detected outside of test execution\n"}
{"Action":"fail","Package":"m/f"}
`
	for _, c := range []struct {
		what              string
		verbose           bool
		args              []string
		events            string
		prints, failures  []string
		hidden, unlisted  string
		nothingHasToBeRun bool
	}{
		{what: "a subtest", args: []string{"-race", "-shuffle=on", "-p", "3", "./...", "-sim.seeds=2"}, events: failing,
			prints:   []string{"x_test.go:1: broken", "FAIL\tm/a"},
			failures: []string{"m/a TestX/one_(more)\n", `go test -race -p 3 -shuffle=7 -count=1 -run '^TestX$/^one_\(more\)$' m/a -sim.seeds=2`},
			hidden:   "quiet", unlisted: "m/a TestX\n"},
		{what: "a process that ends", events: ended,
			prints: []string{"panic: test timed out"}, failures: []string{"m/b: the process ended while these ran: TestZ\n", "go test -count=1 m/b"}},
		{what: "a race outside of tests", events: racing, prints: []string{"Read at e.go:7", "race detected outside"}, failures: []string{"m/e: a data race was detected after its test had passed\n"}},
		{what: "a race after the end of its test", events: racingLate, prints: []string{"Read at f.go:7"}, failures: []string{"m/f: a data race was detected after its test had passed\n"}},
		{what: "no failure", events: passing, prints: []string{"ok  \tm/c"}, hidden: "PASS", nothingHasToBeRun: true},
		{what: "with -v", verbose: true, events: failing, prints: []string{"quiet", "broken"}, hidden: "=== RUN", failures: []string{"TestX/one"}},
		{what: "a package that is not built", events: `{"Action":"build-output","ImportPath":"m/d","Output":"d.go:1: undefined\n"}
{"Action":"fail","Package":"m/d"}
`, prints: []string{"d.go:1: undefined"}, failures: []string{"m/d: it was not built", "go test -count=1 m/d"}},
		{what: "what is no event", events: "go: downloading\n", prints: []string{"go: downloading"}, nothingHasToBeRun: true},
	} {
		printed, failures := reported(t, c.verbose, c.args, c.events)
		for _, want := range c.prints {
			if !strings.Contains(printed, want) {
				t.Errorf("%s: %q is not in\n%s", c.what, want, printed)
			}
		}
		for _, want := range c.failures {
			if !strings.Contains(failures, want) {
				t.Errorf("%s: %q is not in\n%s", c.what, want, failures)
			}
		}
		if c.hidden != "" && strings.Contains(printed, c.hidden) {
			t.Errorf("%s: %q is in\n%s", c.what, c.hidden, printed)
		}
		if c.unlisted != "" && strings.Contains(failures, c.unlisted) {
			t.Errorf("%s: %q is in\n%s", c.what, c.unlisted, failures)
		}
		if c.nothingHasToBeRun != (failures == "") {
			t.Errorf("%s: the list is %q", c.what, failures)
		}
	}
}

// A package whose process the race detector has ended is taken from the report, unless one of its tests had failed.
func TestCrashOfTheRaceDetector(t *testing.T) {
	t.Parallel()
	const crash = `{"Action":"run","Package":"m/a","Test":"TestX"}
{"Action":"run","Package":"m/a","Test":"TestY"}
{"Action":"output","Package":"m/a","Test":"TestX","Output":"ThreadSanitizer: CHECK failed: tsan_rtl.cpp:346\\n"}
{"Action":"fail","Package":"m/a"}
`
	const again = `{"Action":"run","Package":"m/a","Test":"TestX"}
{"Action":"fail","Package":"m/a","Test":"TestX"}
{"Action":"fail","Package":"m/a"}
`
	r := newReport(io.Discard, false)
	if err := r.read(strings.NewReader(crash)); err != nil {
		t.Fatal(err)
	}
	crashed := r.takeCrashed()
	if len(crashed) != 1 || crashed[0].Package != "m/a" || len(r.failed) != 0 {
		t.Fatalf("crashed %v, failed %v", crashed, r.failed)
	}

	if err := r.read(strings.NewReader(again)); err != nil {
		t.Fatal(err)
	}
	if crashed := r.takeCrashed(); len(crashed) != 0 || len(r.failed) != 1 || r.failed[0].Test != "TestX" {
		t.Errorf("the second time: crashed %v, failed %v", crashed, r.failed)
	}

	r = newReport(io.Discard, false)
	failing := strings.Replace(again, `{"Action":"fail","Package":"m/a"}`, "", 1)
	if err := r.read(strings.NewReader(failing + crash)); err != nil {
		t.Fatal(err)
	}
	if crashed := r.takeCrashed(); len(crashed) != 0 || len(r.failed) == 0 {
		t.Errorf("after a failed test: crashed %v, failed %v", crashed, r.failed)
	}
}

// A package is tested once more, and no more than once more, if the race detector has crashed.
func TestTestedOnceMore(t *testing.T) {
	const test = `package a
import (
	"os"
	"testing"
)
func TestA(t *testing.T) {
	tries, _ := os.ReadFile("tries")
	_ = os.WriteFile("tries", append(tries, '.'), 0o600)
	if string(tries) < os.Getenv("CRASHES") {
		println("ThreadSanitizer: CHECK failed")
		os.Exit(66)
	}
}
`
	t.Setenv("LOCKKIT_FAILED", "")
	for crashes, passes := range map[string]bool{".": true, "..": false} {
		t.Setenv("CRASHES", crashes)
		t.Chdir(t.TempDir())
		for name, content := range map[string]string{"go.mod": "module a\n", "a_test.go": test} {
			if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}

		var out strings.Builder
		err := run([]string{"-ldflags=-w", "-count=1", "."}, &out)
		tries, _ := os.ReadFile("tries")
		if (err == nil) != passes || strings.Contains(out.String(), "FAILED") == passes || len(tries) != 2 {
			t.Errorf("after %d crashes and %d tries: %v\n%s", len(crashes), len(tries), err, &out)
		}
	}
}
