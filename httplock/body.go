package httplock

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"sync/atomic"

	"github.com/gin-gonic/gin"
)

// A body is the body of a request, as Lock found it.
type body struct {
	content     []byte
	charged     int  // the bytes that it has added to memoryUse
	alreadyRead bool // a middleware further out has read at least a part of it
}

// errBodyRead is the rejection of a request that needs its body as the client sent it.
var errBodyRead = misplaced(
	"Put the middleware further out than whatever reads the body of a request: "+
		"a form parser, a check of CSRF tokens, ShouldBindBodyWith.",
	"the body of the request was read before Lock, which needs it as the client sent it",
)

// readBody reads the body, up to the limit. Until the body is read, net/http does not notice that a client leaves.
func (rs *requestState) readBody() error {
	limit := int64(rs.m.bodyLimit)
	if rs.r.ContentLength > limit { // a client that expects 100-continue has not sent it yet
		return bodyTooLarge(limit, nil)
	}
	if rs.m.admission.isExceeded(memoryUse, rs.m.memory) {
		return errOverloaded
	}

	if rs.r.Body != nil && rs.r.Body != http.NoBody {
		server := rs.w
		if guarded, ok := server.(arrivalWriter); ok {
			server = guarded.arrived().outer // which net/http recognizes
		}
		content, err := io.ReadAll(meteredReader{http.MaxBytesReader(server, rs.r.Body, limit), rs})
		rs.body.content = content
		if err != nil {
			return bodyError(err)
		}
	}
	rs.body.alreadyRead = rs.bodyWasRead()
	return nil
}

// bodyError returns the rejection of a request after its body could not be read to the end.
func bodyError(err error) error {
	limitErr, ok := errors.AsType[*http.MaxBytesError](err)
	switch {
	case ok: // a middleware further out may have set the limit
		return bodyTooLarge(limitErr.Limit, err)
	case errors.Is(err, errOverloaded):
		return err
	}
	return &rejection{kind: EventBodyBroken, err: err}
}

func bodyTooLarge(limit int64, err error) error {
	detail := fmt.Sprintf("It must have no more than %d bytes.", limit)
	return &rejection{kind: EventBodyTooLarge, detail: detail, err: err}
}

// bodyWasRead reports whether a middleware further out has read at least a part of the body. It uses the header
// Content-Length instead of Request.ContentLength, because middleware that decompresses a body deletes the header. If
// the length is unknown, a partial read cannot be recognized.
func (rs *requestState) bodyWasRead() bool {
	length, err := strconv.Atoi(rs.r.Header.Get("Content-Length"))
	if err == nil {
		return len(rs.body.content) < length
	}
	isEmpty := len(rs.body.content) == 0 && rs.r.ContentLength != 0
	return isEmpty || rs.formParsed() || rs.storedByGin()
}

// formParsed reports whether the body is a form that was parsed.
func (rs *requestState) formParsed() bool {
	if rs.r.MultipartForm != nil {
		return true
	}
	contentType, _, _ := mime.ParseMediaType(rs.r.Header.Get("Content-Type"))
	return rs.r.PostForm != nil && contentType == "application/x-www-form-urlencoded"
}

// storedByGin reports whether ShouldBindBodyWith has read the body.
func (rs *requestState) storedByGin() bool {
	if rs.gin == nil {
		return false
	}
	_, ok := rs.gin.Get(gin.BodyBytesKey)
	return ok
}

// originalBody returns the body as the client sent it.
func (rs *requestState) originalBody() ([]byte, error) {
	if rs.body.alreadyRead {
		return nil, errBodyRead
	}
	return rs.body.content, nil
}

// A readRecorder records whether its Read was called.
type readRecorder struct {
	io.ReadCloser
	wasRead atomic.Bool
}

func (r *readRecorder) Read(p []byte) (int, error) {
	r.wasRead.Store(true)
	return r.ReadCloser.Read(p)
}

// A meteredReader charges memoryUse for the bytes that are read, rather than for the Content-Length.
type meteredReader struct {
	io.Reader
	rs *requestState
}

func (r meteredReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	reserved := r.rs.m.admission.reserve(memoryUse, n, r.rs.m.memory)
	if !reserved {
		return 0, errOverloaded
	}
	r.rs.body.charged += n
	return n, err
}
