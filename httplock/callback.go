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
func (x *exchange) call(option string, f func(*http.Request)) (returned, readChanged bool) {
	r := x.with(context.WithValue(x.r.Context(), ginKey, x.gin))
	sent := &noted{ReadCloser: r.Body}
	if x.body.changed {
		r.Body = sent
	}
	defer func() { // net/http removes the files of its own request
		x.r.Form, x.r.PostForm, x.r.MultipartForm = r.Form, r.PostForm, r.MultipartForm
	}()
	returned = callback.Call(x.m.locker.Logger(), "httplock."+option, func() { f(r) })
	return returned, sent.read.Load()
}
