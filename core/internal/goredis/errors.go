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

// ErrOverloaded is the error of a request that was not sent because too many are under way.
var ErrOverloaded = errors.New("not asked, because too many requests are under way")

// A quotation is an error whose text is clipped. What it says of itself by its type is in the error that it wraps.
type quotation struct {
	error
	text string
}

func (q *quotation) Error() string { return q.text }
func (q *quotation) Unwrap() error { return q.error }

// quoted is err, of whose text a message quotes a part only if it is long.
func quoted(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	clipped := faults.Clip(text)
	if clipped == text {
		return err
	}
	return &quotation{err, clipped}
}

// Answered reports whether a request was: an error that Redis replied is an answer.
func Answered(err error) bool {
	if err == nil {
		return true
	}
	var reply redis.Error
	return errors.As(err, &reply)
}

// Unsent reports whether a request failed for want of a connection to send it on, which says nothing about
// the node.
func Unsent(err error) bool {
	return errors.Is(err, ErrOverloaded) || errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted)
}

// Broken reports whether a connection was made, and ended before the answer. Where none can be made, or nobody answers
// in time, it is of no use to ask again at once. go-redis shows of a greeting that failed what is in the error only.
func Broken(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// Moved reports whether a request failed in a way that may mean that another server has taken over. go-redis
// follows a redirection by itself, unless there were too many of them.
func Moved(err error) bool {
	switch {
	case err == nil || Unsent(err):
		return false
	case Answered(err):
		return redis.HasErrorPrefix(err, "CLUSTERDOWN") || redis.HasErrorPrefix(err, "MOVED")
	}
	return true
}

// TimedOut reports whether err reads like the end of a context.
func TimedOut(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// denials are a server's refusals for want of a right. A command that was renamed counts as denied.
var denials = []string{"NOPERM", "unknown command", "ACL failure in script", "The user executing the script"}

// Denied reports whether err is one of them.
func Denied(err error) bool { return Says(err, denials...) }

// Says reports whether err is a reply of Redis that begins with one of starts, or with a script's trace that
// leads to it: before version 7 the reason of a script's failure stands last.
func Says(err error, starts ...string) bool {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return false
	}
	text := strings.TrimPrefix(reply.Error(), "ERR ")
	if strings.HasPrefix(text, "Error running script") {
		text = text[strings.LastIndex(text, "@user_script")+1:]
		_, text, _ = strings.Cut(text, ": ")
		text = strings.TrimLeft(text, "-0123456789: ")
	}
	return slices.ContainsFunc(starts, func(start string) bool { return strings.HasPrefix(text, start) })
}
