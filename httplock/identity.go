package httplock

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"github.com/lockkit/lockkit/core"
)

// A runIdentity makes requests repetitions of one another. The table in the package document shows the parts of the
// identity and of the fingerprint.
type runIdentity struct {
	key         string // the key of the lease and of the record
	name        string // a hash of key: Run.Identity
	fingerprint [sha256.Size]byte
}

const idempotencyHeader = "Idempotency-Key"

// idempotencyKeyPattern matches the two forms of an Idempotency-Key, of 1 to 255 characters each: a string of RFC 9651
// with or without parameters, as in the draft, or visible characters without quotes, as many clients send it. In both
// forms it is the same key.
var idempotencyKeyPattern = regexp.MustCompile(`^(?:` +
	`"((?:[ !#-\[\]-~]|\\["\\]){1,255})"(?:; *` + parameterKeyPattern + `(?:=` + bareItemPattern + `)?)*` +
	`|([!#-+\--\[\]-~]{1,255})` +
	`)$`)

// The patterns of a parameter's key and value, from RFC 9651.
const (
	parameterKeyPattern = `[a-z*][a-z0-9_.*-]*`
	bareItemPattern     = `(?:@?-?[0-9]{1,15}(?:\.[0-9]{1,3})?` + // an integer, a decimal or a date
		`|%?"(?:[ !#-\[\]-~]|\\["\\])*"` + // a string
		`|[A-Za-z*][-!#$%&'*+.^_|~0-9A-Za-z:/` + "`" + `]*` + // a token
		`|:[A-Za-z0-9+/=]*:` + // bytes in base64
		`|\?[01])` // a boolean
)

var unescape = strings.NewReplacer(`\\`, `\`, `\"`, `"`)

// identify sets the identity of the request.
func (rs *requestState) identify() error {
	if rs.route.isAmbiguous {
		return errAmbiguous
	}

	match := idempotencyKeyPattern.FindStringSubmatch(strings.Join(rs.r.Header[idempotencyHeader], ","))
	if match == nil {
		return &rejection{kind: EventIdempotencyKey}
	}
	idempotencyKey := unescape.Replace(match[1]) + match[2] // one of them is empty

	body, err := rs.originalBody()
	if err != nil {
		return err
	}
	sender, isNamed, err := rs.senderName()
	if err != nil {
		return err
	}

	// The parameters of the route have no names here: the template has them, in the same order.
	parts := []string{
		"http/idempotent", rs.m.service, rs.tenant, rs.r.Method, rs.route.template, sender, idempotencyKey,
	}
	for _, p := range rs.route.parameters {
		parts = append(parts, p.value)
	}
	rs.identity.key = core.Key(parts...)
	rs.identity.name = fmt.Sprintf("%x", sha256.Sum256([]byte(rs.identity.key)))

	// The path counts as sent and as the router sees it: middleware may have rewritten it.
	content := []string{requestTarget(rs.r), rs.r.URL.EscapedPath(), rs.r.URL.RawQuery, string(body)}
	if !isNamed {
		content = append(content, credentials(rs.r)...)
	}
	rs.identity.fingerprint = sha256.Sum256([]byte(core.Key(content...)))
	return nil
}

// requestTarget returns path and query as the client sent them, even inside http.StripPrefix. It leaves out the address
// of the service, which some clients send as well.
func requestTarget(r *http.Request) string {
	if strings.HasPrefix(r.RequestURI, "/") {
		return r.RequestURI
	}

	// The client has sent the absolute form, as in GET http://host/path.
	scheme, afterScheme, found := strings.Cut(r.RequestURI, "://")
	isAbsolute := found && !strings.ContainsAny(scheme, ":/?")
	if !isAbsolute {
		return r.RequestURI
	}
	switch i := strings.IndexAny(afterScheme, "/?"); {
	case i < 0:
		return "/"
	case afterScheme[i] == '?':
		return "/" + afterScheme[i:]
	default:
		return afterScheme[i:]
	}
}

// credentials returns the credentials of the request, which distinguish senders that the application does not name.
func credentials(r *http.Request) (all []string) {
	for _, name := range []string{"Authorization", "Cookie", "X-Api-Key"} {
		all = append(all, core.Key(r.Header[name]...))
	}

	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		all = append(all, string(r.TLS.PeerCertificates[0].Raw))
	}
	return all
}
