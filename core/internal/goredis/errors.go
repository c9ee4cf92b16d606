package goredis

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/internal/faults"
)

// ErrOverloaded is the error of a request that was not sent because too many are in flight.
var ErrOverloaded = errors.New("not asked, because too many requests are under way")

// A clippedError is an error with a clipped text. It unwraps to the whole error.
type clippedError struct {
	error
	text string
}

func (e *clippedError) Error() string { return e.text }
func (e *clippedError) Unwrap() error { return e.error }

// clip returns err, with its text clipped if it is long.
func clip(err error) error {
	if err == nil {
		return nil
	}

	text := err.Error()
	clipped := faults.Clip(text)
	if clipped == text {
		return err
	}
	return &clippedError{err, clipped}
}

// Answered reports whether a request was answered: an error that Redis replied is an answer.
func Answered(err error) bool {
	if err == nil {
		return true
	}
	var reply redis.Error
	return errors.As(err, &reply)
}

// NotSent reports whether a request failed because there was no connection to send it on. That says nothing about
// the node.
func NotSent(err error) bool {
	return errors.Is(err, ErrOverloaded) ||
		errors.Is(err, redis.ErrPoolTimeout) ||
		errors.Is(err, redis.ErrPoolExhausted)
}

// ConnectionLost reports whether a connection was made, and ended before the answer. If no connection can be made,
// or the server does not answer in time, it is of no use to retry at once. If the greeting of a new connection
// failed, go-redis reports only the error.
func ConnectionLost(err error) bool {
	return errors.Is(err, io.EOF) ||
		errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, syscall.EPIPE)
}

// Moved reports whether a request failed in a way that may mean that another server has taken over. go-redis follows
// redirections on its own, unless there are too many.
func Moved(err error) bool {
	switch {
	case err == nil || NotSent(err):
		return false
	case Answered(err):
		return redis.HasErrorPrefix(err, "CLUSTERDOWN") || redis.HasErrorPrefix(err, "MOVED")
	}
	return true
}

// TimedOut reports whether err matches the end of a context.
func TimedOut(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// denials are the beginnings of replies that deny a right. A command that was renamed counts as denied.
var denials = []string{"NOPERM", "unknown command", "ACL failure in script", "The user executing the script"}

// IsDenied reports whether err is a reply that denies a right.
func IsDenied(err error) bool { return HasReplyPrefix(err, denials...) }

// HasReplyPrefix reports whether err is a reply of Redis that begins with one of starts, possibly after the trace of a
// script: before version 7 the reason of a script's failure comes last.
func HasReplyPrefix(err error, starts ...string) bool {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return false
	}

	text := strings.TrimPrefix(reply.Error(), "ERR ")
	if strings.HasPrefix(text, "Error running script") {
		// The reason follows the last position in the script: a line number, and perhaps a dash.
		text = text[strings.LastIndex(text, "@user_script")+1:]
		_, text, _ = strings.Cut(text, ": ")
		text = strings.TrimLeft(text, "-0123456789: ")
	}
	return slices.ContainsFunc(starts, func(start string) bool { return strings.HasPrefix(text, start) })
}
