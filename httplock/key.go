package httplock

import (
	"errors"

	"github.com/lockkit/lockkit/core"
)

// A part makes a component of a key. An error that is no *rejection says why the request does not name what it should.
type keyPart = func(rs *requestState) (string, error)

// value returns what f makes of the request, and an error if that is nothing.
func (rs *requestState) evaluate(f keyPart) (string, error) {
	value, err := f(rs)
	if _, rejected := errors.AsType[*rejection](err); rejected || err == nil && value != "" {
		return value, err
	}
	return "", &rejection{kind: EventKeyMissing, err: err}
}

// findTenant finds out whose request it is, which is a part of all its keys.
func (rs *requestState) resolveTenant() (err error) {
	if rs.m.tenant != nil {
		rs.tenant, err = rs.evaluate(rs.m.tenant)
	}
	return err
}

// sender returns who sends the request, and whether anybody has named the sender.
func (rs *requestState) senderName() (name string, isNamed bool, err error) {
	name, err = rs.evaluate(rs.m.sender)
	if errors.Is(err, errNoSender) {
		return "", false, nil
	}
	return name, true, err
}

// resourceKey returns the key of the request's resource. It is empty if nothing makes one.
func (rs *requestState) resourceKey() (string, error) {
	if rs.m.wholeKey != nil {
		return rs.evaluate(rs.m.wholeKey)
	}
	if rs.m.keyParts == nil {
		return "", nil
	}
	parts := append(make([]string, 0, 8), "http/route", rs.m.service, rs.tenant, rs.route.template) // most keys need no more
	for _, f := range rs.m.keyParts {
		value, err := rs.evaluate(f)
		if err != nil {
			return "", err
		}
		parts = append(parts, value)
	}
	return core.Key(parts...), nil
}
