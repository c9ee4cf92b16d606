package httpfence

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/fence/internal/holder"
)

// Header is the name of the header. In a request, it has the key prefix, the key and the fencing token of a lease,
// encoded like parameters of a URL: key=order%3A42&prefix=lockkit%3A&token=1764465600000000. In a response, it says why
// the request was refused.
const Header = "Lockkit-Fence"

// ErrHeader means that the header of a request is missing or malformed, or is for another key.
var ErrHeader = errors.New("header " + Header + " cannot be used")

// Set sets the header of a request to the innermost lease of the request's context, or to the lease that was received
// with the request that is being handled in it. The error matches core.ErrInvalid if there is none, or r is nil.
func Set(r *http.Request) error {
	if r == nil {
		return errNoRequest
	}
	innermost, err := holder.Innermost(r.Context())
	if err != nil {
		return err
	}
	return set(r, innermost)
}

// SetLease is Set for a lease that is not the innermost one of the context, such as a lease of several that are held at
// once.
func SetLease(r *http.Request, lease *core.Lease) error {
	if r == nil {
		return errNoRequest
	}
	return set(r, holder.OfLease(lease))
}

var errNoRequest = holder.Invalid("the request is nil")

// set sets the header to a holder.
func set(r *http.Request, h holder.Holder) error {
	if err := h.Check(); err != nil {
		return err
	}

	if r.Header == nil {
		r.Header = http.Header{}
	}
	r.Header.Set(Header, format(h))
	return nil
}

// format returns the value of the header.
func format(h holder.Holder) string {
	return url.Values{
		"prefix": {h.KeyPrefix},
		"key":    {h.Key},
		"token":  {strconv.FormatUint(h.Token, 10)},
	}.Encode()
}

// Receive returns the context of a request, with the lease of its header as the innermost one. Pass the key under which
// clients must send such a request: a lease on another key would not protect the data that the request changes.
//
// The error matches ErrHeader if the header is missing or malformed, or is for another key; [Refuse] answers it. It
// matches core.ErrInvalid if r is nil or the key is empty.
func Receive(r *http.Request, key string) (context.Context, error) {
	if r == nil {
		return nil, errNoRequest
	}
	if key == "" {
		return nil, holder.Invalid("the key of the request is empty: name the lock under which clients may send it")
	}

	values := r.Header.Values(Header)
	if len(values) != 1 {
		return nil, fmt.Errorf("%w: there are %d of it", ErrHeader, len(values))
	}

	h, err := parse(values[0])
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrHeader, err)
	}

	if h.Key != key {
		return nil, fmt.Errorf("%w: it is for another key", ErrHeader)
	}
	return holder.WithReceived(r.Context(), h), nil
}

// maxAhead is how far a token may be ahead of this machine's clock. Lock nodes accept tokens that are up to a day ahead
// of their clocks, and another day is for the difference of the clocks. A greater token would lock out all holders for
// longer.
const maxAhead = 48 * time.Hour

// parse returns the holder in the value of a header. Errors do not quote it, because keys may be secrets.
func parse(value string) (h holder.Holder, err error) {
	fields, err := url.ParseQuery(value)
	if err != nil {
		return h, errors.New("it is not encoded as the parameters of a URL")
	}

	// Other fields are refused, too: a later version may have a meaning for them.
	for _, name := range []string{"prefix", "key", "token"} {
		if len(fields[name]) != 1 {
			return h, fmt.Errorf("it has %d fields %s, must have one", len(fields[name]), name)
		}
	}
	if len(fields) != 3 {
		return h, errors.New("it has other fields than prefix, key and token")
	}
	if fields.Get("prefix") == "" {
		return h, errors.New("its prefix is empty")
	}

	token, err := strconv.ParseUint(fields.Get("token"), 10, 63)
	isToken := err == nil && token > 0
	if !isToken {
		return h, errors.New("its token is not a number from 1 to 2^63-1")
	}
	if time.UnixMicro(int64(token)).After(time.Now().Add(maxAhead)) {
		return h, errors.New("its token is ahead of the clock of this service by more than 48h")
	}

	return holder.Holder{
		KeyPrefix: fields.Get("prefix"),
		Key:       fields.Get("key"),
		Token:     token,
	}, nil
}
