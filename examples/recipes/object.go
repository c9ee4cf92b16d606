package recipes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/lockkit/lockkit/core"
)

// An object is a version of an object in a store such as S3. Its token is stored as the first line. In the metadata, it
// would not change the ETag, which may depend on the content alone: a later holder that writes the same content again
// could not be seen.
type object struct {
	content []byte
	etag    string // "" if there is no object
	token   uint64 // of the write that made the version
}

// errOvertaken: another write came between the read of an object and its write.
var errOvertaken = errors.New("the object has changed since it was read")

// ChangeObject replaces the content of an object by the result of change, under the innermost lease of ctx. Without an
// object, change gets nil. If a later holder of the lock has written, ChangeObject writes nothing, and returns an error
// that matches core.ErrLost.
func ChangeObject(ctx context.Context, client *http.Client, url string, change func(content []byte) []byte) error {
	lease, isHeld := core.FromContext(ctx)
	if !isHeld {
		return errors.New("there is no lease")
	}

	for {
		found, err := getObject(ctx, client, url)
		if err != nil {
			return err
		}
		if found.token > lease.FencingToken() {
			return staleToken(lease, found.token)
		}

		made := object{change(found.content), found.etag, lease.FencingToken()}
		err = putObject(ctx, client, url, made)
		if !errors.Is(err, errOvertaken) {
			return err // nil, or an error after which the object may have been written
		}
	}
}

// putObject writes an object if it is still the version with the ETag, or if there is still none.
func putObject(ctx context.Context, client *http.Client, url string, o object) error {
	stored := fmt.Appendf(nil, "%d\n%s", o.token, o.content)
	request, err := http.NewRequestWithContext(ctx, http.MethodPut, url, bytes.NewReader(stored))
	if err != nil {
		return err
	}

	if o.etag == "" {
		request.Header.Set("If-None-Match", "*")
	} else {
		request.Header.Set("If-Match", o.etag)
	}

	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()

	switch response.StatusCode {
	case http.StatusOK, http.StatusCreated, http.StatusNoContent:
		return nil
	case http.StatusPreconditionFailed:
		return errOvertaken
	case http.StatusConflict, http.StatusNotFound: // of S3, beside another write, and after a deletion
		return errOvertaken
	}
	return fmt.Errorf("PUT %s: %s", url, response.Status)
}

// getObject reads an object.
func getObject(ctx context.Context, client *http.Client, url string) (o object, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return o, err
	}
	response, err := client.Do(request)
	if err != nil {
		return o, err
	}
	defer response.Body.Close()

	switch response.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound:
		return o, nil
	default:
		return o, fmt.Errorf("GET %s: %s", url, response.Status)
	}

	stored, err := io.ReadAll(response.Body)
	if err != nil {
		return o, err
	}

	line, content, _ := bytes.Cut(stored, []byte("\n"))
	o = object{content: content, etag: response.Header.Get("ETag")}
	o.token, err = strconv.ParseUint(string(line), 10, 63)
	return o, err
}

// staleToken returns an error that the adapters treat as the loss of the lease.
func staleToken(lease *core.Lease, seen uint64) error {
	return &core.OpError{
		Op:     core.OpCheck,
		Key:    lease.Key(),
		Err:    core.ErrLost,
		Detail: fmt.Errorf("%w: the object has token %d", core.ErrLost, seen),
		Reason: core.LossStale,
	}
}
