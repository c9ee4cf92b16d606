package httplock

import (
	"context"
	"net/http"

	"github.com/lockkit/lockkit/internal/callback"
)

// callUser calls a function of the application that the named option was given. It reports whether f returned, and
// whether f read from a body that was not as the client sent it.
//
// All functions of the application are called here, except the handlers. A panic is logged, and the caller refuses the
// request. A function may be slow, or block. So the request must not hold a place among the waiting requests during the
// call, and the time of the call does not count as waiting.
func (rs *requestState) callUser(option string, f func(*http.Request)) (returned, readChanged bool) {
	r := rs.requestWith(context.WithValue(rs.r.Context(), ginKey, rs.gin))
	body := &readRecorder{ReadCloser: r.Body}
	if rs.body.alreadyRead {
		r.Body = body
	}

	defer func() { // f may parse a form
		rs.r.Form = r.Form
		rs.r.PostForm = r.PostForm
		keepFiles(rs.r, r)
	}()
	returned = callback.Call(rs.m.locker.Logger(), "httplock."+option, func() { f(r) })
	return returned, body.wasRead.Load()
}
