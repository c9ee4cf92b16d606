package httplock

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/jsonfield"
)

// A part makes a component of a key.
type part = func(x *exchange) (string, error)

// errRoute: the key cannot be made on this route, whatever the request is.
var errRoute = errors.New("httplock: misconfigured")

// A clientError is what is wrong with a request, in words that its sender may read.
type clientError string

func (e clientError) Error() string { return string(e) }

// ByParam makes the key of path parameters, with the values that the handler gets from c.Param or r.PathValue: after the
// router's own decoding, and not folded in any way.
//
// Parts of a key add up: ByParam and ByQuery together make a key of both. Those given to With replace those
// of the receiver.
func ByParam(names ...string) Option {
	values := by("ByParam", "path parameter", names, func(x *exchange, name string) ([]string, error) {
		value, ok := x.host.param(name)
		if !ok {
			return nil, fmt.Errorf("%w: route %s has no parameter %q", errRoute, x.route, name)
		}
		return []string{value}, nil
	})
	return func(c *config) {
		for _, name := range names {
			bare := strings.Trim(name, ":*{}.")
			c.faults.Check(bare != "" && bare != name, "ByParam(%q): give the name as c.Param and r.PathValue take it: ByParam(%q)", name, bare)
		}
		values(c)
	}
}

// ByHeader makes the key of request headers. Each must be there exactly once.
func ByHeader(names ...string) Option {
	return by("ByHeader", "header", names, func(x *exchange, name string) ([]string, error) {
		return x.r.Header.Values(name), nil
	})
}

// ByQuery makes the key of query parameters. Each must be there exactly once.
func ByQuery(names ...string) Option {
	return by("ByQuery", "query parameter", names, func(x *exchange, name string) ([]string, error) {
		return x.r.URL.Query()[name], nil
	})
}

// by makes parts of the key of what has a name in the request. Which of several values the handler takes is not for the
// middleware to guess.
func by(option, what string, names []string, valuesOf func(*exchange, string) ([]string, error)) Option {
	return func(c *config) {
		c.faults.Check(len(names) == 0, "%s: no name", option)
		for _, name := range names {
			c.faults.Check(name == "", "%s: name is empty", option)
			c.parts = append(c.parts, func(x *exchange) (string, error) {
				values, err := valuesOf(x, name)
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

// ByJSON makes the key of a field of a JSON body, by the path to it: ByJSON("order", "id") reads 42 from
// {"order":{"id":42}}, and ByJSON("order.id") from {"order.id":42}. It must be a string, a number or a boolean, and not
// empty; 42 and "42" are one key, 42 and 42.0 two.
// An object in which the field is there twice, also in another case, is answered with 400: who decodes it takes one or the
// other. So is what is not JSON, or a string that is not all Unicode; a body above [WithBodyLimit] is answered with 413.
func ByJSON(path ...string) Option {
	name := strings.Join(path, ".")
	return func(c *config) {
		c.faults.Check(len(path) == 0 || slices.Contains(path, ""), "ByJSON: the path to the field is empty, or a name in it")
		c.readsBody = true
		c.parts = append(c.parts, func(x *exchange) (string, error) {
			if !x.body.whole {
				return "", errBodyTooLarge
			}
			value, err := jsonfield.Of(x.body.data, path)
			if err != nil {
				return "", clientError(fmt.Sprintf("The field %s of the body does not name the resource: %v.", name, err))
			}
			return value, nil
		})
	}
}

// A Request is what a function is called with: the context of gin, or the request of net/http, which suits both entrances.
type Request interface{ *gin.Context | *http.Request }

// ByFunc makes the key of what f returns. An error, or an empty string, is answered with 400; the error's text
// is not sent, but a reply of your own has it as Refusal.Err (see [WithReply], [WithHTTPReply]). f may read the body, up to
// [WithBodyLimit]; the handler gets it whole. A function of gin's context cannot
// serve net/http: its requests are answered with 500. To lock some requests only, call Lock for these and c.Next for the
// others.
func ByFunc[R Request](f func(r R) (string, error)) Option {
	return func(c *config) { c.parts = append(c.parts, function(c, "ByFunc", f)) }
}

// ByKey has the request lock the key that f returns, as it is: neither service nor route is added. Make it with core.Key.
// What locks the same key elsewhere (another route or service, a task, a job, core.Locker.Do) and the request exclude one
// another and share the key's fencing tokens. f is called as with ByFunc. An error, or an empty key, is answered with 400; a
// key that core refuses, with 500.
//
// ByKey is all of a key: it goes with no other part, nor with WithScope or WithTenant. Where an Idempotency-Key is to
// belong to a tenant, use the Once of another Middleware.
func ByKey[R Request](f func(r R) (string, error)) Option {
	return func(c *config) { c.key = function(c, "ByKey", f) }
}

// WithTenant puts a tenant into every key, also into that of idempotent requests, so that tenants share
// nothing. f is called as with ByFunc, so Lock and Once go after the middleware that finds out who sends the request. An
// error or an empty tenant is answered with 400.
//
// Without it, a repetition must carry the same credentials as the first request, or is answered with 422: the headers
// Authorization, Cookie and X-Api-Key, and the client's certificate. Where these change, as tokens do that are renewed, have
// f return whom they stand for.
func WithTenant[R Request](f func(r R) (string, error)) Option {
	return func(c *config) { c.tenant = function(c, "WithTenant", f) }
}

// function makes a part of f, which may read what was read of the body.
func function[R Request](c *config, option string, f func(R) (string, error)) part {
	c.faults.Check(f == nil, "%s: function is nil", option)
	c.readsBody = true
	return func(x *exchange) (value string, err error) {
		limit := x.body.peek(x.r)
		defer x.body.rewind(x.r)
		err = fmt.Errorf("%w: %s has a function of gin's context, and the request came by net/http", errRoute, option)
		switch f := any(f).(type) {
		case func(*http.Request) (string, error):
			value, err = f(x.r)
		case func(*gin.Context) (string, error):
			if h, ok := x.host.(ginHost); ok {
				value, err = f(h.Context)
			}
		}
		if limit.reached { // gin's PostForm and others make nothing of the error, and the form stays without its fields
			return "", errBodyTooLarge
		}
		return value, err
	}
}

// WithScope has all routes of the service with this scope share keys: equal parts make equal keys, whatever the routes and
// the names of the parameters are. Without it, keys belong to a route, by its template.
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

// lockKey returns the key that the request locks.
func (x *exchange) lockKey() (string, error) {
	switch c := x.m; {
	case c.key != nil:
		return x.nonempty("resource", c.key)
	case len(c.parts) == 0:
		return "", fmt.Errorf("%w: nothing makes a key: give ByKey, ByParam, ByHeader, ByQuery, ByJSON or ByFunc", errRoute)
	}
	tenant, err := x.tenant()
	if err != nil {
		return "", err
	}
	parts := append(make([]string, 0, 4+len(x.m.parts)), byRoute, x.m.service, tenant, x.route)
	if x.m.scope != "" {
		parts[0], parts[3] = byScope, x.m.scope
	}
	for _, part := range x.m.parts {
		v, err := x.nonempty("resource", part)
		if err != nil {
			return "", err
		}
		parts = append(parts, v)
	}
	return core.Key(parts...), nil
}

// tenant returns "" only where there are no tenants.
func (x *exchange) tenant() (string, error) {
	if x.m.tenant == nil {
		return "", nil
	}
	return x.nonempty("tenant", x.m.tenant)
}

// nonempty returns what f does, and an error where that names nothing.
func (x *exchange) nonempty(what string, f part) (string, error) {
	v, err := f(x)
	if err == nil && v == "" {
		err = clientError("The request does not name its " + what + ".")
	}
	return v, err
}
