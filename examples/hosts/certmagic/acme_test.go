package certmagic

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/letsencrypt/pebble/v2/ca"
	"github.com/letsencrypt/pebble/v2/db"
	"github.com/letsencrypt/pebble/v2/va"
	"github.com/letsencrypt/pebble/v2/wfe"

	"github.com/lockkit/lockkit/testutil"
)

// newOrder is the path to which pebble's directory sends clients that want a certificate.
const newOrder = "/order-plz"

// A certificateAuthority is Let's Encrypt's own test server, pebble, which finds every challenge met. Each order waits
// until the test lets it pass.
type certificateAuthority struct {
	t        *testing.T
	url      string // of its directory
	rootFile string // the certificate of its HTTPS
	placed   atomic.Int32
	arrivals chan *order
}

// An order is a request for a certificate that has arrived.
type order struct {
	from string // the name of a process
	pass chan struct{}
}

func startAuthority(t *testing.T) *certificateAuthority {
	t.Helper()
	quiet := log.New(io.Discard, "", 0)
	store := db.NewMemoryStore()
	issuer := ca.New(quiet, store, "", "ecdsa", 0, 1, map[string]ca.Profile{"default": {}})
	validator := va.New(quiet, 0, 0, false, "", store)
	frontEnd := wfe.New(quiet, store, validator, issuer, nil, false, false, 0, 0)

	a := &certificateAuthority{t: t, arrivals: make(chan *order)}
	server := httptest.NewTLSServer(a.gate(frontEnd.Handler()))
	t.Cleanup(server.Close)
	a.url = server.URL + wfe.DirectoryPath
	a.rootFile = filepath.Join(t.TempDir(), "root.pem")
	root := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	err := os.WriteFile(a.rootFile, root, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// gate counts the orders that next places. An order whose process dies at the gate is not placed.
func (a *certificateAuthority) gate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != newOrder {
			next.ServeHTTP(w, r)
			return
		}

		body, err := io.ReadAll(r.Body) // the context ends with the connection only after that
		if err != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		name, _, _ := strings.Cut(r.UserAgent(), " ")
		o := &order{from: name, pass: make(chan struct{})}
		select {
		case a.arrivals <- o:
		case <-r.Context().Done():
			return
		}
		select {
		case <-o.pass:
		case <-r.Context().Done():
			return
		}
		a.placed.Add(1)
		next.ServeHTTP(w, r)
	})
}

// next returns the order that arrives next.
func (a *certificateAuthority) next() *order {
	a.t.Helper()
	return testutil.Receive(a.t, a.arrivals)
}

// wantPlaced fails the test unless n orders were placed.
func (a *certificateAuthority) wantPlaced(n int32) {
	a.t.Helper()
	if placed := a.placed.Load(); placed != n {
		a.t.Errorf("%d orders were placed, want %d", placed, n)
	}
}

// rootsOf reads the certificate of an authority.
func rootsOf(file string) (*x509.CertPool, error) {
	root, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(root)
	return pool, nil
}
