package httplock

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/lockkit/lockkit/core"
)

// makeKeys makes the keys that the request locks. Its body is read.
func (x *exchange) makeKeys() (err error) {
	m, parts := x.m, append(make([]string, 0, 8), "http/route", x.m.service, "", x.route) // most keys need no more
	if m.tenant != nil {
		parts[2], err = x.value(m.tenant)
	}
	if err == nil && x.once {
		err = x.makeOnceKey(parts[2])
	}
	for i := 0; i < len(m.parts) && err == nil; i++ {
		parts = append(parts, "")
		parts[len(parts)-1], err = x.value(m.parts[i])
	}
	switch {
	case m.key != nil && err == nil:
		x.key, err = x.value(m.key)
	case m.parts != nil:
		x.key = core.Key(parts...)
	}
	return err
}

// value returns what f makes of the request, and an error if that is nothing.
func (x *exchange) value(f part) (string, error) {
	value, err := f(x)
	if _, rejected := errors.AsType[*rejection](err); rejected || err == nil && value != "" {
		return value, err
	}
	return "", &rejection{kind: EventKeyMissing, err: err}
}

const idempotencyKey = "Idempotency-Key"

// idempotencyKeys are a string of RFC 8941, as the draft has it, or visible characters, as many clients send it, of 1 to 255
// characters. Both ways of writing it are the same key.
var idempotencyKeys = regexp.MustCompile(`^(?:"((?:[ !#-\[\]-~]|\\["\\]){1,255})"|([!#-+\--\[\]-~]{1,255}))$`)

var unescape = strings.NewReplacer(`\\`, `\`, `\"`, `"`)

// makeOnceKey makes the key under which the request runs once, and what else tells it from others with that key.
func (x *exchange) makeOnceKey(tenant string) error {
	given := idempotencyKeys.FindStringSubmatch(strings.Join(x.r.Header[idempotencyKey], ","))
	if given == nil {
		return &rejection{kind: EventIdempotencyKey}
	}
	key := unescape.Replace(given[1]) + given[2]
	x.onceKey = core.Key("http/idempotent", x.m.service, tenant, x.r.Method, strings.ToLower(x.r.Host), x.route, key)
	x.identity = fmt.Sprintf("%x", sha256.Sum256([]byte(x.onceKey)))

	// RequestURI is as it was sent, also inside http.StripPrefix; the same target may come in absolute form.
	target := strings.TrimPrefix(x.r.RequestURI, x.r.URL.Scheme+"://"+x.r.URL.Host)
	parts := []string{target, x.r.URL.EscapedPath(), x.r.URL.RawQuery, string(x.body)}
	if x.m.tenant == nil { // who sends it
		for _, name := range []string{"Authorization", "Cookie", "X-Api-Key"} {
			parts = append(parts, core.Key(x.r.Header[name]...))
		}
		if x.r.TLS != nil && len(x.r.TLS.PeerCertificates) > 0 {
			parts = append(parts, string(x.r.TLS.PeerCertificates[0].Raw))
		}
	}
	x.fingerprint = sha256.Sum256([]byte(core.Key(parts...)))
	return nil
}
