package httplock

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"time"
)

// A body is that of a request, of which a part was read before.
type body struct {
	io.Reader
	data  []byte        // what was read before
	rest  io.ReadCloser // what was not; nil = there is no body
	whole bool          // there is no rest
}

func (b *body) Close() error { return b.rest.Close() }

// rewind has what reads the body next begin at its beginning.
func (b *body) rewind(r *http.Request) { b.readFrom(r, b.rest) }

// peek is rewind for what must read no more than was read before. It returns what notices that more was read for.
func (b *body) peek(r *http.Request) *beyond {
	limit := new(beyond)
	b.readFrom(r, limit)
	return limit
}

func (b *body) readFrom(r *http.Request, rest io.Reader) {
	switch {
	case b.rest == nil:
		return
	case b.whole:
		b.Reader = bytes.NewReader(b.data)
	default:
		b.Reader = io.MultiReader(bytes.NewReader(b.data), rest)
	}
	r.Body = b
}

// beyond is in place of what is beyond the limit.
type beyond struct{ reached bool }

func (b *beyond) Read([]byte) (int, error) {
	b.reached = true
	return 0, errBodyTooLarge
}

var errBodyTooLarge = &http.MaxBytesError{}

// takeBody takes the body over, and reports whether something of it is to be read.
func (x *exchange) takeBody() bool {
	r := x.r
	if read, ok := r.Body.(*body); ok { // by a middleware of ours around this one
		x.body = read
		return false
	}
	x.body = &body{whole: true}
	if r.Body == nil || r.Body == http.NoBody {
		return false
	}
	x.body.rest, x.body.whole = r.Body, r.ContentLength <= int64(x.m.bodyLimit)
	return x.body.whole
}

// errBodies: as many bodies are being read as may be.
var errBodies = errors.New("httplock: too many bodies")

// readBody reads the body up to the limit and puts it back, for the handler to read. net/http looks out for the client's
// leaving only once it has been read to its end. One that does not come in time is an error.
func (x *exchange) readBody(within time.Duration) error {
	bodies := x.m.admission.bodies
	select {
	case bodies <- struct{}{}:
		defer func() { <-bodies }() // a middleware's own reader may panic
	default:
		return errBodies
	}
	r, limit := x.r, int64(x.m.bodyLimit)
	until := time.Now().Add(x.left(min(within, x.m.bodyTimeout)))
	if deadline := x.readDeadline(); !deadline.IsZero() && deadline.Before(until) {
		until = deadline
	}
	connection := http.NewResponseController(x.w)
	limited := connection.SetReadDeadline(until) == nil
	var data bytes.Buffer
	data.Grow(int(min(max(r.ContentLength, 0), 4<<10)) + bytes.MinRead)
	n, err := data.ReadFrom(io.LimitReader(timed{r.Body, until}, limit+1))
	if err != nil {
		return err
	}
	x.body.data, x.body.whole = data.Bytes(), n <= limit
	x.body.rewind(r)
	if limited && !x.body.whole { // net/http sees to it at the end of a body
		_ = connection.SetReadDeadline(x.readDeadline()) // as it was, for the handler
	}
	return nil
}

// readDeadline is that of the server.
func (x *exchange) readDeadline() time.Time {
	if s := x.server(); s != nil && s.ReadTimeout > 0 {
		return x.asked.Add(s.ReadTimeout)
	}
	return time.Time{}
}

// timed is a reader with a deadline between two reads, where the connection takes none.
type timed struct {
	io.Reader
	until time.Time
}

func (t timed) Read(p []byte) (int, error) {
	if !time.Now().Before(t.until) {
		return 0, os.ErrDeadlineExceeded
	}
	return t.Reader.Read(p)
}

// adopt gives the request as it came the form that a handler has read, whose files net/http removes at the request's end.
func adopt(request, run *http.Request) {
	if request.MultipartForm == nil {
		request.MultipartForm = run.MultipartForm
	}
}
