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

// A body is that of a request, as Lock found it.
type body struct {
	content     []byte
	charged     int  // bytes of memory
	alreadyRead bool // it is not what the client sent: somebody further out has read it, or a part of it
}

// errBodyRead is the rejection of a request whose body would have to be what its client sent.
var errBodyRead = misplaced("Put the middleware further out than whatever reads the body of a request: a form parser, a check of CSRF tokens, ShouldBindBodyWith.",
	"the body of the request was read before Lock, which needs it as the client sent it")

// readBody reads the body. net/http looks out for the client's leaving only once that is done.
func (rs *requestState) readBody() error {
	limit := int64(rs.m.bodyLimit)
	if rs.r.ContentLength > limit { // a client that expects 100-continue has not sent it yet
		return bodyTooLarge(limit, nil)
	}
	if !rs.m.admission.use(memoryUse, 0, rs.m.memory) {
		return errOverloaded
	}
	if rs.r.Body != nil && rs.r.Body != http.NoBody {
		content, err := io.ReadAll(meteredReader{http.MaxBytesReader(rs.w, rs.r.Body, limit), rs})
		rs.body.content = content
		if err != nil {
			return bodyError(err)
		}
	}
	rs.body.alreadyRead = rs.bodyWasRead()
	return nil
}

// bodyError returns the rejection of a request whose body could not be read to its end.
func bodyError(err error) error {
	limitErr, ok := errors.AsType[*http.MaxBytesError](err)
	switch {
	case ok: // of our limit, or of somebody else's
		return bodyTooLarge(limitErr.Limit, err)
	case errors.Is(err, errOverloaded):
		return err
	}
	return &rejection{kind: EventBodyBroken, err: err}
}

func bodyTooLarge(limit int64, err error) error {
	return &rejection{kind: EventBodyTooLarge, detail: fmt.Sprintf("It must have no more than %d bytes.", limit), err: err}
}

// bodyWasRead reports whether somebody further out has read the body, or a part of it. The header counts, and not
// Request.ContentLength: middleware that decompresses a body deletes the header. If the length is unknown, a body of which
// only a part was read cannot be told from a whole one.
func (rs *requestState) bodyWasRead() bool {
	announced, err := strconv.Atoi(rs.r.Header.Get("Content-Length"))
	if err == nil {
		return len(rs.body.content) < announced
	}
	empty := len(rs.body.content) == 0 && rs.r.ContentLength != 0
	return empty || rs.formParsed() || rs.storedByGin()
}

// formParsed reports whether the body is a form that was parsed.
func (rs *requestState) formParsed() bool {
	kind, _, _ := mime.ParseMediaType(rs.r.Header.Get("Content-Type"))
	return rs.r.MultipartForm != nil || rs.r.PostForm != nil && kind == "application/x-www-form-urlencoded"
}

// storedByGin reports whether ShouldBindBodyWith has read the body.
func (rs *requestState) storedByGin() bool {
	if rs.gin == nil {
		return false
	}
	_, stored := rs.gin.Get(gin.BodyBytesKey)
	return stored
}

// sentBody returns the body, for what has to know what the client sent.
func (rs *requestState) originalBody() ([]byte, error) {
	if rs.body.alreadyRead {
		return nil, errBodyRead
	}
	return rs.body.content, nil
}

// A noted body notes that somebody has read from it.
type readRecorder struct {
	io.ReadCloser
	wasRead atomic.Bool
}

func (r *readRecorder) Read(p []byte) (int, error) {
	r.wasRead.Store(true)
	return r.ReadCloser.Read(p)
}

// A metered body takes memory for what has come of it, and not for what its client has announced.
type meteredReader struct {
	io.Reader
	x *requestState
}

func (r meteredReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if !r.x.m.admission.use(memoryUse, n, r.x.m.memory) {
		return 0, errOverloaded
	}
	r.x.body.charged += n
	return n, err
}
