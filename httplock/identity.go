package httplock

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/lockkit/lockkit/core"
)

// A runIdentity is what makes requests repetitions of one another. The table in the package document says what is a part of
// which of these.
type runIdentity struct {
	key         string // of the lease, and of the record
	name        string // of it for the handler: Run.Identity
	fingerprint [sha256.Size]byte
}

const idempotencyKey = "Idempotency-Key"

// idempotencyKeys are a string of RFC 9651, with or without parameters, as the draft has it, or visible characters, as many
// clients send it, of 1 to 255 characters. Both ways of writing it are the same key.
var idempotencyKeys = regexp.MustCompile(`^(?:"((?:[ !#-\[\]-~]|\\["\\]){1,255})"(?:; *` + parameterKey + `(?:=` + bareItem + `)?)*|([!#-+\--\[\]-~]{1,255}))$`)

// parameterKey and bareItem are of RFC 9651.
const (
	parameterKey = `[a-z*][a-z0-9_.*-]*`
	bareItem     = `(?:@?-?[0-9]{1,15}(?:\.[0-9]{1,3})?|%?"(?:[ !#-\[\]-~]|\\["\\])*"|[A-Za-z*][-!#$%&'*+.^_|~0-9A-Za-z:/` + "`" + `]*|:[A-Za-z0-9+/=]*:|\?[01])`
)

var unescape = strings.NewReplacer(`\\`, `\`, `\"`, `"`)

// identify finds out what the request is a repetition of.
func (x *exchange) identify() error {
	given := idempotencyKeys.FindStringSubmatch(strings.Join(x.r.Header[idempotencyKey], ","))
	if given == nil {
		return &rejection{kind: EventIdempotencyKey}
	}
	sent, err := x.sentBody()
	if err != nil {
		return err
	}
	sender, named, err := x.sender()
	if err != nil {
		return err
	}

	parts := []string{"http/idempotent", x.m.service, x.tenant, x.r.Method, x.route.template, sender, unescape.Replace(given[1]) + given[2]}
	for _, p := range x.route.parameters {
		parts = append(parts, p.value)
	}
	x.identity.key = core.Key(parts...)
	x.identity.name = fmt.Sprintf("%x", sha256.Sum256([]byte(x.identity.key)))

	content := []string{target(x.r), x.r.URL.EscapedPath(), x.r.URL.RawQuery, string(sent)}
	if !named {
		content = append(content, credentials(x.r)...)
	}
	x.identity.fingerprint = sha256.Sum256([]byte(core.Key(content...)))
	return nil
}

// target returns path and query as they were sent, also inside http.StripPrefix. The address of the service is no part of
// it, which may be sent as well.
func target(r *http.Request) string {
	if strings.HasPrefix(r.RequestURI, "/") {
		return r.RequestURI
	}
	sent, err := url.Parse(r.RequestURI)
	if err != nil {
		return r.RequestURI
	}
	return sent.RequestURI()
}

// credentials returns what tells senders apart that nobody names.
func credentials(r *http.Request) (all []string) {
	for _, name := range []string{"Authorization", "Cookie", "X-Api-Key"} {
		all = append(all, core.Key(r.Header[name]...))
	}
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		all = append(all, string(r.TLS.PeerCertificates[0].Raw))
	}
	return all
}
