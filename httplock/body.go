package httplock

import (
	"bytes"
	"errors"
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
	b := body{data.Bytes(), n <= int64(limit)}
	if b.whole {
		r.Body = restored{bytes.NewReader(b.data), r.Body}
	} else {
		r.Body = restored{io.MultiReader(bytes.NewReader(b.data), r.Body), r.Body}
	}
	return b, nil
}

// restored is a body of which a part was read before.
type restored struct {
	io.Reader
	io.Closer
}

// bodyFault is how a request is refused whose body could not be read.
func bodyFault(err error) Refusal {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok { // a limit that somebody else has set
		return refusal(KindBodyTooLarge, err)
	}
	return refusal(KindBodyBroken, err)
}
