package httplock

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"
)

// A connection is the ResponseWriter of the server itself. The middleware can break it, and the middlewares in between
// cannot prevent that.
type connection struct {
	w       http.ResponseWriter
	arrival *arrival // of the request, which may be over; nil without Arrived
	resets  bool     // it is reset instead of closed, because its end would be the end of the body
}

// connectionOf returns the connection behind w. It returns false if w does not lead to a server that is known. The
// writers of http.TimeoutHandler and of many middlewares that compress have no Unwrap. Their other methods prove
// nothing: they may pass a call on to a writer that ignores it.
func connectionOf(w http.ResponseWriter) (connection, bool) {
	var c connection
	for w := range outward(w) {
		c.w = w
		if guarded, ok := w.(arrivalWriter); ok {
			c.arrival = guarded.arrived()
		}
	}

	if c.arrival != nil && !c.arrival.isLive() {
		return connection{}, false
	}
	return c, c.isHTTP1() || c.isHTTP2()
}

// serverOf returns the ResponseWriter of the server behind w, or nil if w does not lead to a server that is known.
func serverOf(w http.ResponseWriter) http.ResponseWriter {
	var c connection
	for w := range outward(w) {
		c.w = w
	}

	if c.isHTTP1() || c.isHTTP2() {
		return c.w
	}
	return nil
}

// isHTTP1 reports whether it is a connection of net/http, over HTTP/1. Of the types of net/http, only the writer of its
// HTTP/1 server is a Hijacker.
func (c connection) isHTTP1() bool {
	_, ok := c.w.(http.Hijacker)
	return ok && definedIn(c.w, "net/http")
}

// isHTTP2 reports whether it is a stream of an HTTP/2 connection.
func (c connection) isHTTP2() bool {
	_, ok := c.w.(interface{ SetWriteDeadline(t time.Time) error })
	if !ok || c.isHTTP1() {
		return false
	}
	packages := []string{"net/http", "net/http/internal/http2", "golang.org/x/net/http2"}
	return slices.ContainsFunc(packages, func(pkg string) bool { return definedIn(c.w, pkg) })
}

// definedIn reports whether v is a pointer to a type of the package.
func definedIn(v any, pkg string) bool {
	t := reflect.TypeOf(v)
	if t == nil || t.Kind() != reflect.Pointer {
		return false
	}
	return strings.TrimPrefix(t.Elem().PkgPath(), "vendor/") == pkg
}

var errNoConnection = errors.New("the connection is hidden by the writer of another middleware")

// cut breaks the connection, so that the client sees that the response is incomplete. It does not wait for the client,
// and no middleware further out can undo it.
func (c connection) cut() error {
	switch {
	case c.w == nil:
		return errNoConnection
	case c.arrival != nil:
		return c.arrival.cut()
	}

	// Over HTTP/2, a deadline in the past resets the stream at once. Over HTTP/1.1, it keeps Hijack from waiting for a
	// client that does not read. Some connections have no deadlines: over HTTP/1.1 the error does not matter.
	err := http.NewResponseController(c.w).SetWriteDeadline(time.Unix(1, 0))
	if !c.isHTTP1() {
		return err
	}

	// When its handlers have returned, the server ends a response in good order, unless the connection was taken over.
	conn, _, err := c.w.(http.Hijacker).Hijack() //nolint:forcetypeassert // see isHTTP1
	if errors.Is(err, http.ErrHijacked) {
		return nil // the server sends no response on it any more
	}
	if err != nil {
		return err
	}
	conn = rawConn(conn)

	if tcp, ok := conn.(interface{ SetLinger(sec int) error }); ok && c.resets {
		_ = tcp.SetLinger(0) // it is closed all the same
	}
	return conn.Close()
}

// rawConn returns the connection that carries conn if that is TLS: closing a TLS connection may wait for the client.
func rawConn(conn net.Conn) net.Conn {
	if secure, ok := conn.(*tls.Conn); ok {
		return secure.NetConn()
	}
	return conn
}
