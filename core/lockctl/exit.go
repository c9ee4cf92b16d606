package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/lockkit/lockkit/core"
)

// Exit statuses.
const (
	exitOK      = 0
	exitProblem = 1
	exitUsage   = 2
)

// errProblemFound is the error of a command whose output reports a problem. It sets the exit status and is not printed.
var errProblemFound = errors.New("found something wrong")

// A usageError is an error in the arguments or settings.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// exitStatus prints an error, if there is one, on one line, and returns the exit status.
func exitStatus(stderr io.Writer, err error) int {
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errProblemFound):
		return exitProblem
	}

	lines := strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' })
	text := printable(strings.Join(lines, "; "))
	fmt.Fprintf(stderr, "lockctl: %s\n", strings.TrimPrefix(text, "lockkit: "))

	_, isUsage := errors.AsType[usageError](err)
	if isUsage || errors.Is(err, core.ErrInvalid) {
		return exitUsage
	}
	return exitProblem
}
