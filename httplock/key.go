package httplock

import (
	"errors"
	"fmt"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
)

// A part makes a component of a key.
type part = func(c *gin.Context) (string, error)

// errRoute: the key cannot be made on this route, whatever the request is.
var errRoute = errors.New("httplock: misconfigured")

// A clientError is what is wrong with a request, in words that its sender may read.
type clientError string

func (e clientError) Error() string { return string(e) }

// ByParam makes the key of path parameters, with the values that the handler gets from c.Param: after gin's
// own decoding, and not folded in any way.
//
// Parts of a key add up: ByParam and ByQuery together make a key of both. Those given to With replace those
// of the receiver.
func ByParam(names ...string) Option {
	return by("ByParam", "path parameter", names, func(c *gin.Context, name string) ([]string, error) {
		value, ok := c.Params.Get(name)
		if !ok {
			return nil, fmt.Errorf("%w: route %s has no parameter %q", errRoute, c.FullPath(), name)
		}
		return []string{value}, nil
	})
}

// ByHeader makes the key of request headers. Each must be there exactly once.
func ByHeader(names ...string) Option {
	return by("ByHeader", "header", names, func(c *gin.Context, name string) ([]string, error) {
		return c.Request.Header.Values(name), nil
	})
}

// ByQuery makes the key of query parameters. Each must be there exactly once.
func ByQuery(names ...string) Option {
	return by("ByQuery", "query parameter", names, func(c *gin.Context, name string) ([]string, error) {
		return c.QueryArray(name), nil
	})
}

// by makes parts of the key of what has a name in the request. Which of several values the handler takes is not for the
// middleware to guess.
func by(option, what string, names []string, valuesOf func(*gin.Context, string) ([]string, error)) Option {
	return func(c *config) {
		c.faults.Check(len(names) == 0, "%s: no name", option)
		for _, name := range names {
			c.faults.Check(name == "", "%s: name is empty", option)
			c.parts = append(c.parts, func(c *gin.Context) (string, error) {
				values, err := valuesOf(c, name)
				switch {
				case err != nil:
					return "", err
				case len(values) > 1:
					return "", clientError(fmt.Sprintf("The request has more than one %s %s.", what, name))
				case len(values) == 0 || values[0] == "":
					return "", clientError(fmt.Sprintf("The request lacks the %s %s.", what, name))
				}
				return values[0], nil
			})
		}
	}
}

// ByFunc makes the key of what f returns. An error, or an empty string, is answered with 400; the error's text
// is not sent. It must not read the body, which is there only after the key. To lock some requests
// only, call Lock for these and c.Next for the others.
func ByFunc(f func(c *gin.Context) (string, error)) Option {
	return func(c *config) {
		c.faults.Check(f == nil, "ByFunc: function is nil")
		c.parts = append(c.parts, f)
	}
}

// ByKey has the request lock the key that f returns, as it is: no route is added. Make it with core.Key. What locks the
// same key elsewhere (another route, a task, a job, core.Locker.Do) and the request exclude one another and share the
// key's fencing tokens. An error, or an empty key, is answered with 400, as with ByFunc; a key that core refuses, with 500.
//
// ByKey is all of a key: it goes with no other part, nor with WithScope or WithTenant. Where an Idempotency-Key is to
// belong to a tenant, put a Lock of another Middleware for it around this one.
func ByKey(f func(c *gin.Context) (string, error)) Option {
	return func(c *config) {
		c.faults.Check(f == nil, "ByKey: function is nil")
		c.key = f
	}
}

// WithTenant puts a tenant into every key, also into that of idempotent requests, so that tenants share
// nothing. An error or an empty tenant is answered with 400.
func WithTenant(f func(c *gin.Context) (string, error)) Option {
	return func(c *config) {
		c.faults.Check(f == nil, "WithTenant: function is nil")
		c.tenant = f
	}
}

// WithScope has all routes with this scope share keys: equal parts make equal keys, whatever the routes and the
// names of the parameters are. Without it, keys belong to a route, by its template.
func WithScope(scope string) Option {
	return func(c *config) {
		c.faults.Check(scope == "", "WithScope: scope is empty")
		c.scope = scope
	}
}

// What keys begin with, so that those of different kinds differ.
const (
	byRoute    = "http/route"
	byScope    = "http/scope"
	idempotent = "http/idempotent"
)

// resource returns the key that a request locks, and "" if its route locks none.
func (c *config) resource(g *gin.Context, tenant string) (string, error) {
	switch {
	case c.key != nil:
		return nonempty("resource", c.key, g)
	case len(c.parts) == 0:
		return "", nil
	}
	parts := append(make([]string, 0, 3+len(c.parts)), byRoute, tenant, g.FullPath())
	if c.scope != "" {
		parts[0], parts[2] = byScope, c.scope
	}
	for _, part := range c.parts {
		v, err := nonempty("resource", part, g)
		if err != nil {
			return "", err
		}
		parts = append(parts, v)
	}
	return core.Key(parts...), nil
}

// tenantOf returns "" only where there are no tenants.
func (c *config) tenantOf(g *gin.Context) (string, error) {
	if c.tenant == nil {
		return "", nil
	}
	return nonempty("tenant", c.tenant, g)
}

// nonempty returns what f does, and an error where that names nothing.
func nonempty(what string, f part, g *gin.Context) (string, error) {
	v, err := f(g)
	if err == nil && v == "" {
		err = clientError("The request does not name its " + what + ".")
	}
	return v, err
}
