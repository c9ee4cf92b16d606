package main

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Three worker processes run a thousand tasks, and are killed at random. Every task is completed exactly once, and no
// two handlers of one order run at a time.
func TestThousandTasksAndRandomKills(t *testing.T) {
	t.Parallel()
	out, err := exec.Command(build(t), "-scene", "kills", "-tasks", "1000", "-orders", "100", "-kills", "15", "-limit", "5m").CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatal(err)
	}
	// Without kills during work, and so without duplicates, the run would show nothing.
	for _, row := range []string{"duplicate deliveries suppressed", "cut short by a kill"} {
		found := regexp.MustCompile(row + ` +(\d+)`).FindSubmatch(out)
		if found == nil {
			t.Fatalf("no row %q", row)
		}
		if n, err := strconv.Atoi(string(found[1])); err != nil || n == 0 {
			t.Errorf("%s: %d, %v", row, n, err)
		}
	}
}

func build(t *testing.T) (program string) {
	t.Helper()
	program = filepath.Join(t.TempDir(), "queue.exe") // a name that Windows can run
	if out, err := exec.Command("go", "build", "-ldflags=-w", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// Tasks of a hot key run without long pauses, and a worker without locks takes few tasks. These scenes measure times,
// so no other test of this package runs beside them.
func TestHotKeyAndCutOffWorker(t *testing.T) {
	program := build(t)
	for _, scene := range []string{"hot", "cutoff"} {
		t.Run(scene, func(t *testing.T) {
			out, err := exec.Command(program, "-scene", scene).CombinedOutput()
			t.Logf("%s", out)
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

// The verdicts on a hot key and on a worker without locks notice faults.
func TestVerdicts(t *testing.T) {
	l := newLedger()
	l.enqueued("1")
	l.enqueued("2")
	for _, line := range []string{"taken 1 0 90 ", "begin 1 1 100 order", "end 1 1 110 order", "taken 2 0 115 ", "begin 2 2 130 order", "end 2 2 140 order"} {
		l.report("a", line)
	}
	if took, alone := l.pace(); took != 40 || alone != 20 {
		t.Errorf("took %v, alone %v", took, alone)
	}
	if n := l.takenBy("a"); n != 2 || l.takenBy("b") != 0 {
		t.Errorf("a took %d, b %d", n, l.takenBy("b"))
	}
	if tooSlow(40, 20) != nil || tooSlow(41, 20) == nil || tooSlow(time.Hour, 0) == nil {
		t.Error("pauses")
	}
	if tookTooMany(cutOffMost) != nil || tookTooMany(cutOffMost+1) == nil {
		t.Error("what the worker without locks took")
	}
}

// The verdict of the ledger notices faults.
func TestLedgerNotices(t *testing.T) {
	for name, lines := range map[string][][2]string{
		"lost":          {},
		"overlap":       {{"a", "begin 1 1 100 order"}, {"b", "begin 2 2 110 order"}, {"a", "end 1 1 120 order"}, {"b", "end 2 2 130 order"}, {"a", "completed 1 0 121 "}, {"b", "completed 2 0 131 "}},
		"token":         {{"a", "begin 1 2 100 order"}, {"a", "end 1 2 120 order"}, {"a", "completed 1 0 121 "}, {"b", "begin 2 1 130 order"}, {"b", "end 2 1 140 order"}, {"b", "completed 2 0 141 "}},
		"run again":     {{"a", "begin 1 1 100 order"}, {"a", "end 1 1 120 order"}, {"a", "completed 1 0 121 "}, {"b", "begin 1 2 130 order"}, {"b", "end 1 2 140 order"}, {"a", "duplicate 2 0 150 "}},
		"again, early":  {{"b", "begin 1 2 130 order"}, {"a", "begin 1 1 100 order"}, {"a", "end 1 1 120 order"}, {"b", "end 1 2 140 order"}, {"a", "completed 1 0 121 "}, {"a", "duplicate 2 0 150 "}},
		"done twice":    {{"a", "completed 1 0 121 "}, {"b", "completed 1 0 122 "}, {"a", "duplicate 2 0 150 "}},
		"garbage":       {{"a", "completed 1 0 121 "}, {"a", "duplicate 2 0 150 "}, {"a", "comp"}},
		"nothing wrong": {{"a", "begin 1 1 100 order"}, {"b", "begin 2 2 121 order"}, {"b", "end 2 2 130 order"}, {"b", "completed 2 0 131 "}, {"b", "duplicate 1 0 140 "}},
	} {
		l := newLedger()
		l.enqueued("1")
		l.enqueued("2")
		for i, line := range lines {
			l.report(line[0], line[1])
			if name == "nothing wrong" && i == 0 && l.killed("a", time.Unix(0, 120)) != 1 {
				t.Error("the kill ended nothing")
			}
		}
		if err := l.check(); (err == nil) != (name == "nothing wrong") {
			t.Errorf("%s: %v\n%s", name, err, l)
		}
	}
}

// A worker reports that it completed a task. Another worker, to which asynq delivers the task again, reports a
// duplicate. Each worker has a pipe of its own, so the reports may arrive in another order.
func TestLedgerInAnyOrder(t *testing.T) {
	a := []string{"begin 1 1 100 order", "end 1 1 120 order", "completed 1 0 121 "}
	b := []string{"duplicate 1 0 140 "}
	for before := range len(a) + 1 { // the lines of a that come first
		l := newLedger()
		l.enqueued("1")
		for _, line := range a[:before] {
			l.report("a", line)
		}
		for _, line := range b {
			l.report("b", line)
		}
		for _, line := range a[before:] {
			l.report("a", line)
		}
		if err := l.check(); err != nil {
			t.Errorf("the duplicate after %d lines: %v", before, err)
		}
		if want := (tally{tasks: 1, once: 1, duplicates: 1, runs: 1}); l.tally() != want {
			t.Errorf("the duplicate after %d lines: %+v", before, l.tally())
		}
	}
}

// The verdict distinguishes tasks that were never completed from tasks that were completed twice.
func TestLedgerTellsNeverFromTwice(t *testing.T) {
	l := newLedger()
	for _, id := range []string{"never", "twice", "once"} {
		l.enqueued(id)
	}
	for _, line := range []string{"completed twice 0 1 ", "completed once 0 1 ", "completed twice 0 2 "} {
		l.report("a", line)
	}
	if n := l.tally(); n.never != 1 || n.twice != 1 || n.once != 1 {
		t.Errorf("%+v", n)
	}
	if err := l.check(); err == nil || !strings.Contains(err.Error(), "1 of 3 tasks were never completed") || !strings.Contains(err.Error(), "1 of 3 tasks were completed twice") {
		t.Error(err)
	}
}
