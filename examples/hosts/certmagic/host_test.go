package certmagic

import (
	"context"
	"crypto/tls"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/mholt/acmez/v3/acme"
	"go.uber.org/zap"

	"github.com/lockkit/lockkit/examples/hosts/internal/replica"
)

// site is the name that the certificate is for, and issuing is certmagic's lock for it.
const (
	site    = "shop.example.com"
	issuing = "issue_cert_" + site
)

// obtained is what certmagic logs when it has a certificate.
const obtained = "certificate obtained successfully"

// patience is how long a process waits for its certificate.
const patience = 10 * time.Minute

// The environment of a process.
const (
	directoryURL = "HOST_ACME_DIRECTORY"
	rootFile     = "HOST_ACME_ROOT"
	storagePath  = "HOST_STORAGE"
	lockless     = "HOST_LOCKLESS"
)

func TestMain(m *testing.M) {
	os.Setenv("PEBBLE_VA_ALWAYS_VALID", "1")
	os.Setenv("PEBBLE_VA_NOSLEEP", "1")
	os.Setenv("PEBBLE_WFE_NONCEREJECT", "0")
	replica.Main(m, serveSite)
}

// serveSite is a process with one site. It says which certificate it serves.
func serveSite(self *replica.Self) error {
	roots, err := rootsOf(os.Getenv(rootFile))
	if err != nil {
		return err
	}

	var storage certmagic.Storage = &certmagic.FileStorage{Path: os.Getenv(storagePath)}
	if os.Getenv(lockless) != "" {
		storage = locklessStorage{storage}
	} else {
		storage, err = newClusterStorage(storage, self.Locker)
		if err != nil {
			return err
		}
	}

	certmagic.UserAgent = self.Name
	certmagic.HTTPTimeout = patience // an order may wait for the test
	log, err := zap.NewDevelopment() // to standard error
	if err != nil {
		return err
	}
	var magic *certmagic.Config
	cache := certmagic.NewCache(certmagic.CacheOptions{
		GetConfigForCert: func(certmagic.Certificate) (*certmagic.Config, error) { return magic, nil },
		Logger:           log,
	})
	magic = certmagic.New(cache, certmagic.Config{
		Storage: storage,
		Logger:  log,
		OCSP:    certmagic.OCSPConfig{DisableStapling: true},
	})
	magic.Issuers = []certmagic.Issuer{certmagic.NewACMEIssuer(magic, certmagic.ACMEIssuer{
		CA:           os.Getenv(directoryURL),
		TrustedRoots: roots,
		Email:        "ops@example.com",
		Agreed:       true,
		DNS01Solver:  idleSolver{},
		Logger:       log,

		CertObtainTimeout: patience,
	})}

	err = magic.ManageSync(context.Background(), []string{site})
	if err != nil {
		return err
	}
	cert, err := magic.GetCertificate(&tls.ClientHelloInfo{ServerName: site})
	if err != nil {
		return err
	}
	self.Say("serves %x", cert.Leaf.SerialNumber)
	self.Hear()
	return nil
}

// An idleSolver does nothing: the authority does not look at challenges.
type idleSolver struct{}

func (idleSolver) Present(context.Context, acme.Challenge) error { return nil }
func (idleSolver) CleanUp(context.Context, acme.Challenge) error { return nil }

// A locklessStorage has locks that lock nothing, as some storages have.
type locklessStorage struct{ certmagic.Storage }

func (locklessStorage) Lock(context.Context, string) error            { return nil }
func (locklessStorage) Unlock(context.Context, string) error          { return nil }
func (locklessStorage) TryLock(context.Context, string) (bool, error) { return true, nil }

// A fleet is two processes that serve the site, and what they share.
type fleet struct {
	*certificateAuthority
	one, other *replica.Replica
}

// startFleet starts the processes one after the other. It returns with the first order, which it has not let pass.
func startFleet(t *testing.T, ttl time.Duration, env ...string) (f fleet, first *order) {
	t.Helper()
	nodes := replica.StartNodes(t, ttl)
	f.certificateAuthority = startAuthority(t)
	env = append(env, directoryURL+"="+f.url, rootFile+"="+f.rootFile, storagePath+"="+t.TempDir())
	f.one = nodes.Start("one", env...)
	first = f.next()
	f.other = nodes.Start("other", env...)
	return f, first
}

// Two processes need a certificate for one site. One of them orders it, and both serve it.
func TestCertmagicOrdersOnce(t *testing.T) {
	t.Parallel()
	f, first := startFleet(t, replica.Long)
	f.other.Await(replica.Held + issuing)
	close(first.pass)

	serial := f.one.Await("serves ")
	if other := f.other.Await("serves "); other != serial {
		t.Errorf("one process %s, and the other %s", serial, other)
	}
	f.wantPlaced(1)
}

// What the lock is for: without it, each process orders a certificate of its own. They may also store the key of one beside
// the certificate of the other, so the test does not wait until they serve.
func TestCertmagicWithoutLocksOrdersTwice(t *testing.T) {
	t.Parallel()
	f, first := startFleet(t, replica.Long, lockless+"=yes")
	second := f.next()
	close(first.pass)
	close(second.pass)
	f.one.Await(obtained)
	f.other.Await(obtained)
	f.wantPlaced(2)
}

// The process that orders is killed. The other one waits for the TTL, and orders.
func TestCertmagicHolderIsKilled(t *testing.T) {
	t.Parallel()
	f, _ := startFleet(t, replica.Usual)
	f.other.Await(replica.Held + issuing)
	f.one.Kill()

	second := f.next()
	if second.from != "other" {
		t.Errorf("an order from %q", second.from)
	}
	close(second.pass)
	f.other.Await("serves ")
	f.wantPlaced(1)
}

// The process that orders loses its lock. The loss is logged at once, and the other process orders. certmagic is not told
// before it unlocks, so it has ordered a second certificate by then.
func TestCertmagicHolderLosesItsLock(t *testing.T) {
	t.Parallel()
	f, first := startFleet(t, replica.Usual)
	f.other.Await(replica.Held + issuing)
	f.one.CutOff()
	f.one.AwaitLoss()

	second := f.next()
	close(second.pass)
	f.other.Await("serves ")
	f.one.Reconnect()
	close(first.pass)
	f.one.Await("serves ")
	if line := f.one.Await("unable to unlock"); !strings.Contains(line, "lease lost") {
		t.Error(line)
	}
	f.wantPlaced(2)
}
