package core

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/lockkit/lockkit/internal/freeport"
	"github.com/lockkit/lockkit/testutil"
)

// A privateCA is a CA that the system does not trust.
type privateCA struct {
	*testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string
}

func newCA(t *testing.T) *privateCA {
	t.Helper()
	ca := &privateCA{T: t, key: must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "private CA"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	ca.cert = template
	ca.cert, ca.file = ca.sign(template, &ca.key.PublicKey)
	return ca
}

// sign makes a certificate, and writes it to a file.
func (ca *privateCA) sign(template *x509.Certificate, key *ecdsa.PublicKey) (*x509.Certificate, string) {
	ca.Helper()
	der := must(x509.CreateCertificate(rand.Reader, template, ca.cert, key, ca.key))
	return must(x509.ParseCertificate(der)), ca.write("CERTIFICATE", der)
}

func (ca *privateCA) write(kind string, der []byte) string {
	ca.Helper()
	path := filepath.Join(ca.TempDir(), "file.pem")
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		ca.Fatal(err)
	}
	return path
}

// issue makes a certificate for names and IP addresses, and returns the files of the certificate and its key.
func (ca *privateCA) issue(names ...string) (cert, key string) {
	ca.Helper()
	pair := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	template := &x509.Certificate{SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	_, cert = ca.sign(template, &pair.PublicKey)
	return cert, ca.write("PRIVATE KEY", must(x509.MarshalPKCS8PrivateKey(pair)))
}

// trusting returns the configuration of a client that trusts the CA.
func (ca *privateCA) trusting() *tls.Config {
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	return &tls.Config{RootCAs: pool}
}

// serve starts a server with a certificate for names, and returns its address for TLS.
func (ca *privateCA) serve(names []string, args ...string) (server *testutil.Server, addr string) {
	ca.Helper()
	testutil.NewServers(ca, 0) // skips the test without redis-server
	cert, key := ca.issue(names...)
	succeeds(ca.T, freeport.Try(func(free string) (err error) {
		addr = free
		taken := []string{"--tls-port", strconv.Itoa(portOf(addr))}
		if slices.Contains(args, "--cluster-enabled") {
			taken = append(taken, "--cluster-port", strconv.Itoa(freePort(ca.T)))
		}
		server, err = testutil.StartServer(ca.TempDir(), slices.Concat(taken, []string{"--tls-cert-file", cert, "--tls-key-file", key,
			"--tls-ca-cert-file", ca.file, "--tls-auth-clients", "no", "--tls-replication", "yes"}, args)...)
		return err
	}))
	ca.Cleanup(server.Close)
	return server, addr
}

// sentinel starts a Sentinel that uses TLS and monitors a primary with TLS.
func (ca *privateCA) sentinel(primary int) (addr string) {
	ca.Helper()
	cert, key := ca.issue("localhost")
	command := func(addr string) *exec.Cmd {
		conf := filepath.Join(ca.TempDir(), "sentinel.conf")
		text := fmt.Sprintf("bind 127.0.0.1\nport 0\ntls-port %d\ntls-cert-file %s\ntls-key-file %s\ntls-ca-cert-file %s\ntls-auth-clients no\n"+
			"tls-replication yes\nsentinel monitor primary 127.0.0.1 %d 1\n", portOf(addr), cert, key, ca.file, primary)
		succeeds(ca.T, os.WriteFile(conf, []byte(text), 0o600))
		return exec.Command("redis-server", conf, "--sentinel")
	}
	sentinel := must(freeport.Start(ca.Context(), command, accepts))
	ca.Cleanup(sentinel.Stop)
	return sentinel.Addr
}

// accepts reports whether a server accepts connections at addr.
func accepts(addr string) bool {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

// freePort returns a port that was free a moment ago.
func freePort(t *testing.T) int {
	t.Helper()
	l := must(net.Listen("tcp", "127.0.0.1:0"))
	defer l.Close()
	return portOf(l.Addr().String())
}

func portOf(addr string) int {
	_, port, _ := net.SplitHostPort(addr)
	return must(strconv.Atoi(port))
}

// pair returns a certificate for a client, with its key.
func (ca *privateCA) pair() tls.Certificate {
	ca.Helper()
	return must(tls.LoadX509KeyPair(ca.issue("client")))
}
