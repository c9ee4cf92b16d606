package httplock

import (
	"context"
	"net/http"

	"github.com/lockkit/lockkit/internal/callback"
)

// call calls a function that the application has given to an option. It reports whether f returned, and whether f has read a
// body that is not what the client sent.
//
// All functions of the application are called here, except the handlers. A panic is logged, and the caller refuses the
// request. A function may be slow, or block: meanwhile the request holds nothing that others need, such as a place among
// those that wait, and what it takes is no waiting.
func (rs *requestState) callUser(option string, f func(*http.Request)) (returned, readChanged bool) {
	r := rs.requestWith(context.WithValue(rs.r.Context(), ginKey, rs.gin))
	body := &readRecorder{ReadCloser: r.Body}
	if rs.body.alreadyRead {
		r.Body = body
	}

	// f may parse a form. Its files must reach the server's request, because net/http removes the files of that one
	// only.
	defer func() {
		rs.r.Form = r.Form
		rs.r.PostForm = r.PostForm
		rs.r.MultipartForm = r.MultipartForm
	}()
	returned = callback.Call(rs.m.locker.Logger(), "httplock."+option, func() { f(r) })
	return returned, body.wasRead.Load()
}
