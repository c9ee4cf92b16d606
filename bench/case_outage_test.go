package main

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// A validFor is a lease with a known end of its validity.
type validFor struct{ until *time.Time }

func (l validFor) lost() error                   { return nil }
func (l validFor) release(context.Context) error { return nil }
func (l validFor) ValidUntil() time.Time         { return *l.until }

func TestRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := time.Now().Add(time.Second), time.Now().Add(time.Minute)
		r := renewalsOf(holdings{validFor{&first}, nil, validFor{&second}})
		second = second.Add(time.Second)
		if r.all() {
			t.Error("all, and one was not renewed")
		}
		time.Sleep(time.Second + time.Nanosecond) // the first lease is lost
		if !r.all() {
			t.Error("not all, and those that are left were renewed")
		}
		if renewalsOf(holdings{&rueidislockLease{}}).all() {
			t.Error("all of leases that do not tell")
		}
	})
}
