package httplock

import (
	"errors"

	"github.com/lockkit/lockkit/core"
)

// A part makes a component of a key. An error that is no *rejection says why the request does not name what it should.
type part = func(x *exchange) (string, error)

// value returns what f makes of the request, and an error if that is nothing.
func (x *exchange) value(f part) (string, error) {
	value, err := f(x)
	if _, rejected := errors.AsType[*rejection](err); rejected || err == nil && value != "" {
		return value, err
	}
	return "", &rejection{kind: EventKeyMissing, err: err}
}

// findTenant finds out whose request it is, which is a part of all its keys.
func (x *exchange) findTenant() (err error) {
	if x.m.tenant != nil {
		x.tenant, err = x.value(x.m.tenant)
	}
	return err
}

// sender returns who sends the request, and whether anybody has named the sender.
func (x *exchange) sender() (name string, named bool, err error) {
	name, err = x.value(x.m.sender)
	if errors.Is(err, errNoSender) {
		return "", false, nil
	}
	return name, true, err
}

// resourceKey returns the key of the request's resource. It is empty if nothing makes one.
func (x *exchange) resourceKey() (string, error) {
	if x.m.key != nil {
		return x.value(x.m.key)
	}
	if x.m.parts == nil {
		return "", nil
	}
	parts := append(make([]string, 0, 8), "http/route", x.m.service, x.tenant, x.route.template) // most keys need no more
	for _, f := range x.m.parts {
		value, err := x.value(f)
		if err != nil {
			return "", err
		}
		parts = append(parts, value)
	}
	return core.Key(parts...), nil
}
