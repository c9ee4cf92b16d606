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
	exitWell  = 0
	exitWrong = 1
	exitUsage = 2
)

// errFound says that what was printed is reason enough for exitWrong.
var errFound = errors.New("found something wrong")

// A usageError is the caller's.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// exit tells of an error, on one line, and returns the status.
func exit(stderr io.Writer, err error) int {
	switch {
	case err == nil:
		return exitWell
	case errors.Is(err, errFound):
		return exitWrong
	}
	line := tidy(strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' }), "; "))
	fmt.Fprintf(stderr, "lockctl: %s\n", strings.TrimPrefix(line, "lockkit: "))
	if _, ok := errors.AsType[usageError](err); ok {
		return exitUsage
	}
	if errors.Is(err, core.ErrInvalid) {
		return exitUsage
	}
	return exitWrong
}
