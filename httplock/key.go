package httplock

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"

	"github.com/gin-gonic/gin"
)

// A part is one component of a key.
type part func(c *gin.Context) (string, error)

// errRoute: the key cannot be made on this route, whatever the request is.
var errRoute = errors.New("httplock: misconfigured")

// An unfit is what is wrong with a request, in words that its sender may read.
type unfit string

func (u unfit) Error() string { return string(u) }

// ByParam makes the key of path parameters, with the values that the handler gets from c.Param: after gin's
// own decoding, and not folded in any way.
//
// Parts of a key add up: ByParam and ByQuery together make a key of both. Those given to With replace those
// of the receiver.
func ByParam(names ...string) Option {
	return by("ByParam", names, func(c *gin.Context, name string) (string, error) {
		value, ok := c.Params.Get(name)
		if !ok {
			return "", fmt.Errorf("%w: route %s has no parameter %q", errRoute, c.FullPath(), name)
		}
		return value, needed("path parameter", name, value)
	})
}

// ByHeader makes the key of request headers. Each must be there exactly once.
func ByHeader(names ...string) Option {
	return by("ByHeader", names, func(c *gin.Context, name string) (string, error) {
		return only("header", name, c.Request.Header.Values(name))
	})
}

// ByQuery makes the key of query parameters. Each must be there exactly once.
func ByQuery(names ...string) Option {
	return by("ByQuery", names, func(c *gin.Context, name string) (string, error) {
		return only("query parameter", name, c.QueryArray(name))
	})
}

// ByFunc makes the key of what f returns. An error, or an empty string, is answered with 400; the error's text
// is not sent. It must not read the body, which is there only after the key. To lock some requests
// only, call Lock for these and c.Next for the others.
func ByFunc(f func(c *gin.Context) (string, error)) Option {
	if f == nil {
		return fault("ByFunc: function is nil")
	}
	return option(func(c *config) { c.parts = append(c.parts, f) })
}

// WithTenant puts a tenant into every key, also into that of idempotent requests, so that tenants share
// nothing. An error or an empty tenant is answered with 400.
func WithTenant(f func(c *gin.Context) (string, error)) Option {
	if f == nil {
		return fault("WithTenant: function is nil")
	}
	return option(func(c *config) { c.tenant = f })
}

// WithScope has all routes with this scope share keys: equal parts make equal keys, whatever the routes and the
// names of the parameters are. Without it, keys belong to a route, by its template.
func WithScope(scope string) Option {
	if scope == "" {
		return fault("WithScope: scope is empty")
	}
	return option(func(c *config) { c.scope = scope })
}

func by(where string, names []string, value func(*gin.Context, string) (string, error)) Option {
	if len(names) == 0 {
		return fault(where + ": no name")
	}
	return option(func(c *config) {
		for _, name := range names {
			if name == "" {
				c.faults = append(c.faults, errors.New(where+": name is empty"))
			}
			c.parts = append(c.parts, func(c *gin.Context) (string, error) { return value(c, name) })
		}
	})
}

func fault(text string) Option {
	return option(func(c *config) { c.faults = append(c.faults, errors.New(text)) })
}

// only returns the one value: which of several the handler takes is not for us to guess.
func only(what, name string, values []string) (string, error) {
	if len(values) > 1 {
		return "", unfit(fmt.Sprintf("The request has more than one %s %s.", what, name))
	}
	if len(values) == 0 {
		return "", needed(what, name, "")
	}
	return values[0], needed(what, name, values[0])
}

func needed(what, name, value string) error {
	if value == "" {
		return unfit(fmt.Sprintf("The request lacks the %s %s.", what, name))
	}
	return nil
}

// A namespace keeps keys of different kinds apart.
type namespace string

const (
	byRoute     namespace = "http/route/"
	byScope     namespace = "http/scope/"
	idempotent  namespace = "http/idempotent/"
	longestKey            = 512 // that core takes
	hashedKeyIs           = "sha256:"
)

// join makes a key. Each value comes with its length, so that no value can pass for two, nor for another kind.
func (n namespace) join(values ...string) string {
	key := make([]byte, 0, 128)
	key = append(key, n...)
	for _, v := range values {
		key = strconv.AppendInt(key, int64(len(v)), 10)
		key = append(key, ':')
		key = append(key, v...)
	}
	if len(key) > longestKey { // a hash cannot be taken for a length
		sum := sha256.Sum256(key)
		return string(n) + hashedKeyIs + hex.EncodeToString(sum[:])
	}
	return string(key)
}

// resource returns the key that a request locks, and "" if its route locks none.
func (c *config) resource(g *gin.Context, tenant string) (string, error) {
	if len(c.parts) == 0 {
		return "", nil
	}
	values := make([]string, 2, 2+len(c.parts))
	n := byRoute
	values[0], values[1] = tenant, g.FullPath()
	if c.scope != "" {
		n, values[1] = byScope, c.scope
	}
	for _, part := range c.parts {
		v, err := part(g)
		if err == nil && v == "" {
			err = unfit("The request lacks what names its resource.")
		}
		if err != nil {
			return "", err
		}
		values = append(values, v)
	}
	return n.join(values...), nil
}

// tenantOf returns "" only where there are no tenants.
func (c *config) tenantOf(g *gin.Context) (string, error) {
	if c.tenant == nil {
		return "", nil
	}
	tenant, err := c.tenant(g)
	if err == nil && tenant == "" {
		err = unfit("The request lacks a tenant.")
	}
	return tenant, err
}
