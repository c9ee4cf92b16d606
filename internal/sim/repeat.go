package sim

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"testing/cryptotest"
	"time"

	"github.com/lockkit/lockkit/internal/race"
)

// This file runs a seed in a fixed process, which does the same each time; see [runFixed].

var attempt = flag.Uint64("sim.attempt", 0, "run SEED in a process that does the same each time; each number makes other random choices")

const attempts = 5 // that many fixed processes run a seed that has failed, unless one fails

var patience = 2 * time.Minute // a fixed process that runs for longer makes no progress, and is killed

// programVariable is in the environment of a fixed process. It has the program that the process runs, as JSON, or is
// empty if the process runs the program of its seed.
const programVariable = "LOCKKIT_SIM_PROGRAM"

// An errNotFixed says why there is no fixed process.
type errNotFixed struct{ error }

func (e errNotFixed) Unwrap() error { return e.error }

// A repetition runs a seed of a test in a fixed process. Each attempt makes other random choices.
type repetition struct {
	test    string
	seed    uint64
	attempt uint64
	build   func() (program string, err error) // makes the program of the process; nil if it is the one of this process
}

// again returns the command that runs r. Without an attempt it runs the seed in the process of the test.
func (r repetition) again() string {
	text := fmt.Sprintf("SEED=%d go test -run '^%s$' -count=1 -v", r.seed, r.test)
	if r.attempt != 0 {
		text += fmt.Sprintf(" -sim.attempt=%d", r.attempt)
	}

	return text
}

// run runs a program in a fixed process, or the program of the seed if program is nil. It returns the output of the
// process, without the lines of package testing. If there is no fixed process, it returns an error.
func (r repetition) run(program *Program) (output string, failed bool, err error) {
	if race.Enabled {
		return "", false, errNotFixed{fmt.Errorf("%w: the race detector has threads of its own", errors.ErrUnsupported)}
	}

	name, err := r.executable()
	if err != nil {
		return "", false, errNotFixed{err}
	}

	var text []byte
	if program != nil {
		text, _ = json.Marshal(program)
	}

	cmd := exec.Command(name, "-test.run=^"+r.test+"$", "-test.v", "-test.timeout=0")
	cmd.Env = []string{fmt.Sprint("SEED=", r.seed), fmt.Sprintf("%s=%s", programVariable, text)}
	var all bytes.Buffer
	cmd.Stdout, cmd.Stderr = &all, &all

	var random [16]byte
	choices := rand.NewPCG(r.seed, r.attempt)
	binary.NativeEndian.PutUint64(random[:], choices.Uint64())
	binary.NativeEndian.PutUint64(random[8:], choices.Uint64())

	err = runFixed(cmd, random, patience)
	if _, isNotFixed := errors.AsType[errNotFixed](err); isNotFixed {
		return "", false, err
	}
	return ofTesting.ReplaceAllString(all.String(), ""), err != nil, nil
}

// executable returns the file of the program that the process runs.
func (r repetition) executable() (name string, err error) {
	if r.build == nil {
		return os.Args[0], nil
	}
	return r.build()
}

// ofTesting matches the lines that package testing writes about a test.
var ofTesting = regexp.MustCompile(`(?m)^(=== .*|\s*--- .*|PASS|FAIL)\n`)

// isFixed reports whether this is a fixed process.
func isFixed() bool {
	_, ok := os.LookupEnv(programVariable)
	return ok
}

// givenProgram returns the program that this fixed process runs. It returns nil if it runs the program of its seed.
func givenProgram(t *testing.T) *Program {
	text := os.Getenv(programVariable)
	if text == "" {
		return nil
	}

	p := new(Program)
	if err := json.Unmarshal([]byte(text), p); err != nil {
		t.Fatal(err)
	}
	return p
}

// find looks for an attempt that fails. It returns that attempt and its output, or attempt 0 if it finds none. The text
// says how to run the seed again.
func (r repetition) find() (found repetition, output, text string) {
	r.attempt = 0
	for n := range uint64(attempts) {
		found := r
		found.attempt = 1 + n

		output, failed, err := found.run(nil)
		switch {
		case err != nil:
			return r, "", fmt.Sprintf("again, but it may pass, because there is no fixed process: %v: %s", err, r.again())
		case failed:
			return found, output, "again: " + found.again()
		}
	}
	return r, "", fmt.Sprintf("again, but it may pass, as it did in %d fixed processes: %s", attempts, r.again())
}

// runOne runs the seed that the environment names: in a fixed process if the flag -sim.attempt is set, and otherwise in
// this process.
func (s simulation) runOne(t *testing.T, seed uint64) {
	if *attempt != 0 {
		isDone := s.repeat(t, repetition{t.Name(), seed, *attempt, s.build})
		if isDone {
			return
		}
	}

	if isFixed() {
		cryptotest.SetGlobalRandom(t, seed)
	}

	reached := Counts{}
	s.run(t, seed, reached)
	t.Log(reached)
}

// repeat runs r and shows its output. It returns false if there is no fixed process.
func (s simulation) repeat(t *testing.T, r repetition) (isDone bool) {
	output, failed, err := r.run(nil)
	switch {
	case err != nil:
		t.Logf("the next run may differ from this one, because there is no fixed process: %v", err)
		return false
	case failed:
		t.Error(s.shrink(r, output))
	default:
		t.Log(output)
	}
	return true
}

// testOf returns the name of the test that t is a part of.
func testOf(t *testing.T) string {
	test, _, _ := strings.Cut(t.Name(), "/")
	return test
}
