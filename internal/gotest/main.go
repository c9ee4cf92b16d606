// Command gotest runs go test with the given arguments, and ends with the list of failed tests, each with the command
// that repeats it in the same order of tests.
//
// It prints a line for each package that passed, and the whole output of each test that failed. With -v it prints the
// output of all tests, except for the lines that only name a test that runs or passed. If the environment variable
// LOCKKIT_FAILED names a file, the list of failures is also appended to it.
//
// If the race detector itself crashes, gotest says so and tests the package once more. The detector crashes now and then
// in synctest bubbles: https://go.dev/issue/78156.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
)

func main() {
	err := run(os.Args[1:], os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "gotest:", err)
		os.Exit(1)
	}
}

// run runs go test, and returns its error if a test failed.
func run(args []string, out io.Writer) error {
	r := newReport(out, slices.Contains(args, "-v"))
	err := r.goTest(args)

	crashed := r.takeCrashed()
	if len(crashed) > 0 && len(r.failed) == 0 {
		err = nil
	}
	for _, f := range crashed {
		fmt.Fprintf(out, "%s: the race detector crashed (https://go.dev/issue/78156); once more:\n", f.Package)
		err = errors.Join(err, r.goTest(f.command(args)))
	}

	failures := r.failures(args)
	fmt.Fprint(out, failures)
	return errors.Join(err, appendTo(os.Getenv("LOCKKIT_FAILED"), failures))
}

// goTest runs go test, and adds what it reports to r. It returns its error if a test failed.
func (r *report) goTest(args []string) error {
	cmd := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	cmd.Stderr = os.Stderr
	events, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}

	readErr := r.read(events)
	testErr := cmd.Wait()
	return errors.Join(readErr, testErr)
}

// read reads the output of go test -json to its end.
func (r *report) read(events io.Reader) error {
	lines := bufio.NewReader(events)
	for {
		line, err := lines.ReadBytes('\n')

		// At the end of the output, the last line comes with io.EOF.
		if len(line) > 0 {
			r.readLine(line)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// readLine handles an event. A line that is not an event is printed as it is.
func (r *report) readLine(line []byte) {
	var e event
	if err := json.Unmarshal(line, &e); err != nil {
		fmt.Fprintf(r.out, "%s", line)
		return
	}
	r.handle(e)
}

// appendTo appends text to the file at path, unless one of them is empty.
func appendTo(path, text string) error {
	if path == "" || text == "" {
		return nil
	}

	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}

	_, err = f.WriteString(text)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}

	return err
}
