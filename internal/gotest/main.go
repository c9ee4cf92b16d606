// Command gotest runs go test with the arguments that it is given, and ends with the list of failed tests, each with the
// command that repeats it in the same order of tests.
//
// It prints a line for each package that passed, and the whole output of each test that failed. With -v it prints the
// output of all tests, without the lines that only name a test that runs or passed. If the environment variable
// LOCKKIT_FAILED names a file, the list of failures is appended to it, too.
package main

import (
	"bufio"
	"encoding/json"
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

func run(args []string, out io.Writer) error {
	cmd := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	cmd.Stderr = os.Stderr
	events, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}

	r := newReport(out, slices.Contains(args, "-v"))
	readErr := r.read(events)
	testErr := cmd.Wait()

	failures := r.failures(args)
	fmt.Fprint(out, failures)
	if err := appendTo(os.Getenv("LOCKKIT_FAILED"), failures); err != nil {
		return err
	}
	if readErr != nil {
		return readErr
	}
	return testErr
}

// read reads what go test -json prints. A line that is no event is printed as it is.
func (r *report) read(events io.Reader) error {
	lines := bufio.NewReader(events)
	for {
		line, err := lines.ReadBytes('\n')
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

func (r *report) readLine(line []byte) {
	var e event
	if err := json.Unmarshal(line, &e); err != nil {
		fmt.Fprintf(r.out, "%s", line)
		return
	}
	r.take(e)
}

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
