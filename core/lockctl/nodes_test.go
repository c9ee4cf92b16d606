package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/freeport"
	"github.com/lockkit/lockkit/testutil"
)

// everyCommand runs lockctl's commands on a node that may fail over, on which a service holds a key.
func everyCommand(t *testing.T, url, addr string) {
	t.Helper()
	env := map[string]string{"LOCKKIT_NODES": url}
	settings := []string{"--max-ttl", "1m", "--guard", "--replica-lag", "11s"}
	well := func(args ...string) string {
		t.Helper()
		got := answered(t, env, append(args, settings...)...)
		if got.code != exitOK || got.err != "" {
			t.Fatalf("lockctl %v: %+v", args, got)
		}
		return got.out
	}

	wantParts(t, well("provision"), "1 node: every one votes.")
	wantParts(t, well("ready"), "Ready")
	wantParts(t, well("lower-max-ttl"), "Nothing has changed")

	long, err := core.Open([]string{url}, core.TTL(time.Hour), core.WithRestartGuard(true), core.WithReplicaLag(11*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	order41 := succeeded(t, func() (*core.Lease, error) { return long.Acquire(t.Context(), "order:41") })
	order41.Release(t.Context())
	if err := long.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantParts(t, well("doctor"), "longer_max_ttl", "1h, heard of ")
	wantParts(t, well("lower-max-ttl"), "is 1m now, and was 1h")

	l, err := core.Open([]string{url}, core.TTL(time.Minute), core.WithRestartGuard(true), core.WithReplicaLag(11*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close(t.Context())
	lease := succeeded(t, func() (*core.Lease, error) { return l.Acquire(t.Context(), "order:42") })
	defer lease.Release(t.Context())

	wantParts(t, well("ls"), "order:42", "1/1")
	wantParts(t, well("show", "order:42"), "order:42 is held.", addr)
	wantParts(t, well("leaks"), "No leaks.")
	wantParts(t, well("doctor"), addr, "yes")
	wantJSON(t, well("doctor", "-o", "json"))
	if got := answered(t, env, append([]string{"release", "order:42", "--token", "7"}, settings...)...); got.code != exitProblem || !strings.Contains(got.err, "is held with token") {
		t.Errorf("%+v", got)
	}
}

// The commands work on a primary behind a Sentinel, and on a Redis Cluster.
func TestNodesOfSeveralServers(t *testing.T) {
	t.Parallel()
	t.Run("Sentinel", func(t *testing.T) {
		t.Parallel()
		c := testutil.NewSentinel(t, 1, time.Minute, "--min-replicas-to-write", "1", "--appendonly", "yes")
		everyCommand(t, "redis-sentinel://127.0.0.1:1?addr="+c.Addr()+"&master_name=primary", "sentinel primary [127.0.0.1:1 "+c.Addr()+"]")
	})
	t.Run("Cluster", func(t *testing.T) {
		t.Parallel()
		c := testutil.NewCluster(t, 1, time.Minute)
		for _, s := range c.Servers {
			s.Client().ConfigSet(t.Context(), "min-replicas-to-write", "1")
		}
		everyCommand(t, "redis-cluster://127.0.0.1:1?addr="+c.Servers[0].Addr(), c.Servers[0].Addr())
	})
}

// A node may have a certificate that a private CA has signed, and may ask for the client's.
func TestPrivateCA(t *testing.T) {
	t.Parallel()
	testutil.NewServers(t, 0) // skips the test if Redis is not installed
	pair, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	self := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}} // the CA, the server and the client
	der, err := x509.CreateCertificate(rand.Reader, self, self, &pair.PublicKey, pair)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(pair)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	cert, key := write("cert", "CERTIFICATE", der), write("key", "PRIVATE KEY", private)
	port := tlsServer(t, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", cert, "--tls-auth-clients", "yes")

	env := map[string]string{"LOCKKIT_NODES": "rediss://127.0.0.1:" + port}
	doctor := func(want string, args ...string) {
		t.Helper()
		got := answered(t, env, append([]string{"doctor", "--guard"}, args...)...)
		if !strings.Contains(got.out, want) {
			t.Errorf("lockctl doctor %v does not say %q: %+v", args, want, got)
		}
	}
	doctor("certificate signed by unknown authority")
	doctor("check the server's certificate and port, and the CA and name that the client asks for (WithTLS; lockctl --ca, --server-name)")
	doctor("does not answer", "--ca", cert) // the server's alert may come after the connection is broken
	doctor("certificate signed by unknown authority", "--cert", cert, "--cert-key", key)
	doctor("lockctl provision", "--ca", cert, "--cert", cert, "--cert-key", key)
	doctor("--server-name", "--ca", cert, "--cert", cert, "--cert-key", key, "--server-name", "other.internal")
	doctor("--server-name", "--node", "rediss://localhost:"+port, "--ca", cert, "--cert", cert, "--cert-key", key)
	doctor("lockctl provision", "--node", "rediss://localhost:"+port, "--ca", cert, "--cert", cert, "--cert-key", key, "--server-name", "127.0.0.1")
	env["LOCKKIT_CA"], env["LOCKKIT_CERT"], env["LOCKKIT_CERT_KEY"] = cert, cert, key
	doctor("lockctl provision")
	if got := answered(t, env, "ls"); got.code != exitOK || got.err != "" {
		t.Errorf("%+v", got)
	}
	if got := ctl(t, env, "ls", "--node", "127.0.0.1:"+port); got.code != exitUsage || !strings.Contains(got.err, "rediss://") {
		t.Errorf("%+v", got)
	}
}

// tlsServer starts a server, and returns its port for TLS.
func tlsServer(t *testing.T, args ...string) (port string) {
	t.Helper()
	err := freeport.Try(func(addr string) error {
		_, port, _ = net.SplitHostPort(addr)
		s, err := testutil.StartServer(t.TempDir(), append(args, "--tls-port", port)...)
		if err == nil {
			t.Cleanup(s.Close)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return port
}
