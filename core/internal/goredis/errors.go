package goredis

import (
	"context"
	"errors"
	"io"
	"syscall"

	"github.com/redis/go-redis/v9"
)

// ErrOverloaded is the error of a request that was not sent because too many are under way.
var ErrOverloaded = errors.New("not asked, because too many requests are under way")

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
