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
	content []byte
	taken   int  // bytes of memory
	changed bool // it is not what the client sent: somebody further out has read it, or a part of it
}

// errBodyRead is the rejection of a request whose body would have to be what its client sent.
var errBodyRead = misplaced("Put the middleware further out than whatever reads the body of a request: a form parser, a check of CSRF tokens, ShouldBindBodyWith.",
	"the body of the request was read before Lock, which needs it as the client sent it")

// readBody reads the body. net/http looks out for the client's leaving only once that is done.
func (x *exchange) readBody() error {
	limit := int64(x.m.bodyLimit)
	if x.r.ContentLength > limit { // a client that expects 100-continue has not sent it yet
		return tooLargeBody(limit, nil)
	}
	if !x.m.admission.use(memory, 0, x.m.memory) {
		return overloaded
	}
	if x.r.Body != nil && x.r.Body != http.NoBody {
		content, err := io.ReadAll(metered{http.MaxBytesReader(x.w, x.r.Body, limit), x})
		x.body.content = content
		if err != nil {
			return bodyError(err)
		}
	}
	x.body.changed = x.bodyWasRead()
	return nil
}

// bodyError returns the rejection of a request whose body could not be read to its end.
func bodyError(err error) error {
	large, ok := errors.AsType[*http.MaxBytesError](err)
	switch {
	case ok: // of our limit, or of somebody else's
		return tooLargeBody(large.Limit, err)
	case errors.Is(err, overloaded):
		return err
	}
	return &rejection{kind: EventBodyBroken, err: err}
}

func tooLargeBody(limit int64, err error) error {
	return &rejection{kind: EventBodyTooLarge, detail: fmt.Sprintf("It must have no more than %d bytes.", limit), err: err}
}

// bodyWasRead reports whether somebody further out has read the body, or a part of it. The header counts, and not
// Request.ContentLength: middleware that decompresses a body deletes the header. If the length is unknown, a body of which
// only a part was read cannot be told from a whole one.
func (x *exchange) bodyWasRead() bool {
	announced, err := strconv.Atoi(x.r.Header.Get("Content-Length"))
	if err == nil {
		return len(x.body.content) < announced
	}
	empty := len(x.body.content) == 0 && x.r.ContentLength != 0
	return empty || x.formParsed() || x.storedByGin()
}

// formParsed reports whether the body is a form that was parsed.
func (x *exchange) formParsed() bool {
	kind, _, _ := mime.ParseMediaType(x.r.Header.Get("Content-Type"))
	return x.r.MultipartForm != nil || x.r.PostForm != nil && kind == "application/x-www-form-urlencoded"
}

// storedByGin reports whether ShouldBindBodyWith has read the body.
func (x *exchange) storedByGin() bool {
	if x.gin == nil {
		return false
	}
	_, stored := x.gin.Get(gin.BodyBytesKey)
	return stored
}

// sentBody returns the body, for what has to know what the client sent.
func (x *exchange) sentBody() ([]byte, error) {
	if x.body.changed {
		return nil, errBodyRead
	}
	return x.body.content, nil
}

// A noted body notes that somebody has read from it.
type noted struct {
	io.ReadCloser
	read atomic.Bool
}

func (n *noted) Read(p []byte) (int, error) {
	n.read.Store(true)
	return n.ReadCloser.Read(p)
}

// A metered body takes memory for what has come of it, and not for what its client has announced.
type metered struct {
	io.Reader
	x *exchange
}

func (b metered) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if !b.x.m.admission.use(memory, n, b.x.m.memory) {
		return 0, overloaded
	}
	b.x.body.taken += n
	return n, err
}
