package goredis

import (
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http/httptest"
	"testing"
	"time"
)

// A certificate must match the name or address that is dialed. If only the URL has a name, it must match that name.
func TestCertified(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ addr, host, want string }{
		{"redis-1.internal:6379", "redis-1.internal", "redis-1.internal"},
		{"redis-2.internal:6379", "redis-1.internal", "redis-2.internal"},
		{"10.0.0.2:6379", "redis-1.internal", "redis-1.internal"},
		{"[fd00::2]:6379", "redis-1.internal", "redis-1.internal"},
		{"10.0.0.2:6379", "10.0.0.1", "10.0.0.2"},
		{"redis-2.internal:6379", "10.0.0.1", "redis-2.internal"},
		{"10.0.0.2:6379", "", "10.0.0.2"},
		{"/run/redis.sock", "", "/run/redis.sock"},
	} {
		if got := certifiedName(c.addr, c.host); got != c.want {
			t.Errorf("%s of a URL with %s: %s, want %s", c.addr, c.host, got, c.want)
		}
	}
}

// A server is asked for the certificate of the same name, if the caller has no TLS configuration.
func TestDialledNames(t *testing.T) {
	t.Parallel()
	asked := make(chan string, 2)
	server := httptest.NewUnstartedServer(nil)
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // discards the errors about clients that do not trust it
	server.TLS = &tls.Config{GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		asked <- hello.ServerName
		return nil, nil
	}}
	server.StartTLS()
	t.Cleanup(server.Close)
	dial := Dialer{Timeout: time.Minute}.dialer(&tls.Config{ServerName: "redis-1.internal"})
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	for host, want := range map[string]string{"localhost": "localhost", "127.0.0.1": "redis-1.internal"} {
		if _, err := dial(t.Context(), "tcp", host+":"+port); err == nil {
			t.Error("no error")
		}
		if name := <-asked; name != want {
			t.Errorf("%s is asked for a certificate of %s, want %s", host, name, want)
		}
	}
}
