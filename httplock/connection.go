package httplock

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"reflect"
	"strings"
	"time"
)

// A connection is what carries a response to its client: the ResponseWriter of the server itself. The middleware can break
// it, whatever the middlewares around it do.
type connection struct{ w http.ResponseWriter }

// connectionOf returns the connection behind w. It returns false if w does not lead to a server that is known. The writers
// of http.TimeoutHandler and of many middlewares that compress have no Unwrap. Their other methods prove nothing: they may
// pass a call on to a writer that ignores it.
func connectionOf(w http.ResponseWriter) (connection, bool) {
	for {
		outer, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			break
		}
		w = outer.Unwrap()
	}
	c := connection{w}
	return c, c.http1() || c.http2()
}

// http1 reports whether it is a connection of net/http, over HTTP/1. Of the types of net/http, only the writer of its
// HTTP/1 server is a Hijacker.
func (c connection) http1() bool {
	_, ok := c.w.(http.Hijacker)
	return ok && definedIn(c.w, "net/http")
}

// http2 reports whether it is a stream of an HTTP/2 connection.
func (c connection) http2() bool {
	_, ok := c.w.(interface{ SetWriteDeadline(t time.Time) error })
	return ok && !c.http1() && (definedIn(c.w, "net/http") || definedIn(c.w, "net/http/internal/http2") || definedIn(c.w, "golang.org/x/net/http2"))
}

// definedIn reports whether v is a pointer to a type of that package.
func definedIn(v any, pkg string) bool {
	t := reflect.TypeOf(v)
	return t != nil && t.Kind() == reflect.Pointer && strings.TrimPrefix(t.Elem().PkgPath(), "vendor/") == pkg
}

var errNoConnection = errors.New("the connection is hidden by the writer of another middleware")

// cut breaks the connection, so that the client sees that the response is not whole. It does not wait for the client, and
// nothing that is further out can undo it.
func (c connection) cut() error {
	if c.w == nil {
		return errNoConnection
	}

	// Over HTTP/2, a deadline in the past resets the stream at once. Over HTTP/1.1, it keeps Hijack from waiting for a
	// client that does not read; there are connections that have no deadlines.
	err := http.NewResponseController(c.w).SetWriteDeadline(time.Unix(1, 0))
	if !c.http1() {
		return err
	}

	// The server ends a response in good order when its handlers have returned, unless the connection is no longer its own.
	conn, _, err := c.w.(http.Hijacker).Hijack() //nolint:forcetypeassert // http1 says so
	if errors.Is(err, http.ErrHijacked) {
		return nil // whoever has it sends no response of this server
	}
	if err != nil {
		return err
	}
	return beneath(conn).Close()
}

// beneath returns the connection that carries one of TLS, which may wait for the client when it is closed.
func beneath(conn net.Conn) net.Conn {
	if secure, ok := conn.(*tls.Conn); ok {
		return secure.NetConn()
	}
	return conn
}
