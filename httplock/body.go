package httplock

import (
	"bytes"
	"io"
	"net/http"
)

// A body is what was read of a request's.
type body struct {
	data  []byte
	whole bool // there is no more of it
}

// readBody reads the body of r up to limit and puts it back, for the handler to read. net/http looks out
// for the client's leaving only once it has been read to its end.
func readBody(r *http.Request, limit int) (body, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return body{whole: true}, nil
	}
	if r.ContentLength > int64(limit) {
		return body{}, nil
	}
	var data bytes.Buffer
	data.Grow(int(max(r.ContentLength, 0)) + bytes.MinRead)
	n, err := data.ReadFrom(io.LimitReader(r.Body, int64(limit)+1))
	if err != nil {
		return body{}, err
	}
	r.Body = restored{io.MultiReader(bytes.NewReader(data.Bytes()), r.Body), r.Body}
	return body{data.Bytes(), n <= int64(limit)}, nil
}

// restored is a body of which a part was read before.
type restored struct {
	io.Reader
	io.Closer
}
