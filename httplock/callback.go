package httplock

import (
	"context"
	"mime/multipart"
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
		rs.r.Body = body // the request of gin's context
	}

	defer func() { // f may parse a form
		if isEmptyForm(r.MultipartForm) { // r.MultipartReader has left one, which the handler could not parse
			r.MultipartForm = nil
		}
		rs.r.Form = r.Form
		rs.r.PostForm = r.PostForm
		keepFiles(rs.r, r)
	}()
	returned = callback.Call(rs.m.locker.Logger(), "httplock."+option, func() { f(r) })
	return returned, body.wasRead.Load()
}

func isEmptyForm(form *multipart.Form) bool {
	return form != nil && len(form.Value) == 0 && len(form.File) == 0
}
