package httplock

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/jsonfield"
)

// A part makes a component of a key. An error that is no *rejection says why the request does not name what it should.
type part = func(x *exchange) (string, error)

// ByParam makes the key of path parameters, with the values that the handler gets from c.Param or r.PathValue: decoded as the
// router does it, and not folded in any way.
//
// The parts of a key add up: ByParam and ByJSON together make a key of both. Those that With is given replace those of its
// receiver.
func ByParam(names ...string) Option {
	return func(c *config) {
		c.faults.Check(len(names) == 0, "ByParam: no name")
		for _, name := range names {
			bare := strings.Trim(name, ":*{}.")
			c.faults.Check(bare != name || name == "", "ByParam(%q): give the name as c.Param and r.PathValue take it: ByParam(%q)", name, bare)
			c.parts = append(c.parts, func(x *exchange) (string, error) {
				value := x.r.PathValue(name)
				known := value != "" || strings.Contains(x.r.Pattern, "{"+name) // {id}, {id...}, {id:regexp}
				if x.gin != nil {
					value, known = x.gin.Params.Get(name)
				}
				if !known {
					return "", misconfigured("route %s has no parameter %q", x.route, name)
				}
				return value, nil
			})
		}
	}
}

// ByJSON makes the key of a field of a JSON body, by the path to it: ByJSON("order", "id") reads 42 from
// {"order":{"id":42}}, and ByJSON("order.id") from {"order.id":42}. It must be a string, a number or a boolean, and not
// empty; 42 and "42" are one key, 42 and 42.0 two.
//
// Anything else is refused with 400. So is a field that is there twice, also in another case: decoders take one or the
// other.
func ByJSON(path ...string) Option {
	return func(c *config) {
		c.faults.Check(len(path) == 0 || slices.Contains(path, ""), "ByJSON: the path to the field is empty, or a name in it")
		c.parts = append(c.parts, func(x *exchange) (string, error) {
			value, err := jsonfield.Of(x.body, path)
			if err != nil {
				detail := fmt.Sprintf("The field %s of the body does not name it: %v.", strings.Join(path, "."), err)
				return "", &rejection{EventKeyMissing, detail, err}
			}
			return value, nil
		})
	}
}

// ByFunc makes the key of what f returns. An error or an empty string is refused with 400; its text is not sent, and
// [WithReply] gets it as Refusal.Err. f may read the body; the handler gets it whole. In gin, [GinContext] returns the
// context.
func ByFunc(f func(r *http.Request) (string, error)) Option {
	return func(c *config) { c.parts = append(c.parts, function(c, "ByFunc", f)) }
}

// ByKey makes f return the key itself, without service and route; build it with core.Key. Requests and other users of the
// key (another route or service, a task, a job, core.Locker.Do) exclude each other, and share its fencing tokens. f is
// called as with ByFunc; a key that core refuses is refused with 500. ByKey cannot be combined with other parts of a key;
// [WithTenant] is then part of the Idempotency-Key only.
func ByKey(f func(r *http.Request) (string, error)) Option {
	return func(c *config) { c.key = function(c, "ByKey", f) }
}

// WithTenant makes what f returns part of all keys, so that tenants share nothing. f is called as with ByFunc: put the
// authentication before Lock. An error or an empty tenant is refused with 400. If credentials change between repetitions,
// as tokens do that are renewed, let f return the user they stand for.
//
// By default there are no tenants, and a repetition with other credentials (the headers Authorization, Cookie and
// X-Api-Key, and the client's certificate) is refused with 422.
func WithTenant(f func(r *http.Request) (string, error)) Option {
	return func(c *config) { c.tenant = function(c, "WithTenant", f) }
}

// function makes a part of a function of the user's.
func function(c *config, option string, f func(*http.Request) (string, error)) part {
	c.faults.Check(f == nil, "%s: the function is nil", option)
	return func(x *exchange) (string, error) { return f(x.request()) }
}

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

	target := x.r.RequestURI // which http.StripPrefix leaves as it was
	if u, err := url.ParseRequestURI(target); err == nil && u.Host != "" {
		target = u.RequestURI() // the same target in absolute form
	}
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
