package httplock

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/jsonfield"
)

// A keyPart returns a component of a key. Its error is a *rejection, or says why the request lacks the component.
type keyPart = func(rs *requestState) (string, error)

// paramPart returns the part that is the value of a path parameter.
func paramPart(name string) keyPart {
	const advice = "Put the middleware at the route that has it, and not further out: " +
		"with chi by r.With, and not by r.Use in r.Route."

	return func(rs *requestState) (string, error) {
		value, ok := rs.route.parameter(name)
		switch {
		case rs.route.isAmbiguous:
			return "", errAmbiguous
		case !ok:
			return "", misplaced(advice,
				"the route %s, as the middleware sees it, has no parameter %q", rs.route.template, name)
		}
		return value, nil
	}
}

// jsonPart returns the part that is a field of the JSON body.
func jsonPart(path []string) keyPart {
	return func(rs *requestState) (string, error) {
		body, err := rs.originalBody()
		if err != nil {
			return "", err
		}

		value, err := jsonfield.Of(body, path)
		if err != nil {
			detail := fmt.Sprintf("The field %s of the body does not name it: %v.", strings.Join(path, "."), err)
			return "", &rejection{kind: EventKeyMissing, detail: detail, err: err}
		}
		return value, nil
	}
}

// userFunc returns the part that is the result of a function of the application, which the named option was given.
func userFunc(c *config, option string, f func(*http.Request) (string, error)) keyPart {
	c.faults.Check(f == nil, "%s: the function is nil", option)

	return func(rs *requestState) (value string, err error) {
		returned, readChanged := rs.callUser(option, func(r *http.Request) { value, err = f(r) })
		switch {
		case !returned:
			return "", misconfigured("the function that %s was given panicked", option)
		case readChanged:
			return "", errBodyRead
		case err != nil && rs.r.Context().Err() != nil: // f could not look anything up
			return "", &rejection{kind: EventGone, err: err}
		}
		return value, err
	}
}

// evaluate returns the component that f makes of the request. An empty component is an error.
func (rs *requestState) evaluate(f keyPart) (string, error) {
	value, err := f(rs)
	if err == nil && value != "" {
		return value, nil
	}

	if _, ok := errors.AsType[*rejection](err); ok {
		return value, err
	}
	return "", &rejection{kind: EventKeyMissing, err: err}
}

// resolveTenant sets the tenant of the request, which all its keys contain.
func (rs *requestState) resolveTenant() (err error) {
	if rs.m.tenant != nil {
		rs.tenant, err = rs.evaluate(rs.m.tenant)
	}
	return err
}

var errNoSender = errors.New("httplock: requests have no sender")

// senderName returns the sender of the request. isNamed is false if the application uses NoSender.
func (rs *requestState) senderName() (name string, isNamed bool, err error) {
	name, err = rs.evaluate(rs.m.sender)
	if errors.Is(err, errNoSender) {
		return "", false, nil
	}
	return name, true, err
}

// resourceKey returns the key of the request's resource. It is empty if no option makes one.
func (rs *requestState) resourceKey() (string, error) {
	if rs.m.wholeKey != nil {
		return rs.evaluate(rs.m.wholeKey)
	}
	if rs.m.keyParts == nil {
		return "", nil
	}

	parts := make([]string, 0, 8) // most keys need no more
	parts = append(parts, "http/route", rs.m.service, rs.tenant, rs.route.template)
	for _, f := range rs.m.keyParts {
		value, err := rs.evaluate(f)
		if err != nil {
			return "", err
		}
		parts = append(parts, value)
	}
	return core.Key(parts...), nil
}
