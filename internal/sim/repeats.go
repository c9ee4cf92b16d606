package sim

import (
	"errors"
	"slices"
	"syscall"
	"testing"
)

// Repeats checks that a seed of the campaign has the same trace in two fixed processes. The test of that name calls
// Test.
func (c Campaign) Repeats(t *testing.T, test string, seed uint64) {
	t.Helper()

	r := repetition{test: test, seed: seed, attempt: 1, build: c.withBuild(t).build}
	needFixedProcesses(t, r)
	repeated(t, r)
}

// repeated runs r until an output comes for the second time, and returns it. On a machine with much load, a run may
// differ from the others.
func repeated(t *testing.T, r repetition) string {
	t.Helper()

	var outputs []string
	for range 10 {
		output, failed, err := r.run(nil)
		if failed || err != nil {
			t.Fatalf("%s: %v\n%s", r.again(), err, output)
		}
		if slices.Contains(outputs, output) {
			return output
		}
		outputs = append(outputs, output)
	}

	t.Fatalf("%s: no two runs are equal:\n%s\nand\n%s", r.again(), outputs[0], outputs[1])
	return ""
}

// needFixedProcesses skips a test where fixed processes are not supported, or the system refuses something that they
// need. It runs r to find out.
func needFixedProcesses(t *testing.T, r repetition) {
	t.Helper()

	_, _, err := r.run(nil)
	_, isRefused := errors.AsType[syscall.Errno](err)
	switch {
	case isRefused, errors.Is(err, errors.ErrUnsupported):
		t.Skip(err)
	case err != nil:
		t.Fatal(err)
	}
}
