package core

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// Operators is what package admin has, which imports this one: its external tests hand it in.
var Operators struct {
	Diagnose      func(ctx context.Context, nodes []redis.UniversalClient, opts ...Option) (Diagnosis, error)
	Dial          func(urls []string, opts ...Option) ([]redis.UniversalClient, error)
	Provision     func(ctx context.Context, l *Locker) error
	Revoke        func(ctx context.Context, l *Locker, key string, token uint64) (Revocation, error)
	ForgetRecord  func(ctx context.Context, l *Locker, key string, token uint64) error
	TokenMismatch error
}

// What admin's calls return.
type (
	Revocation struct {
		Holder Holder
		Left   time.Duration
		Nodes  []NodeReply
	}
	Diagnosis struct {
		Nodes    []NodeDiagnosis
		Findings []Finding
	}
	NodeDiagnosis struct {
		Node     int
		Addr     string
		Reached  bool
		Err      error
		Findings []Finding
	}
	Finding struct{ Severity, Code, What, Mend string }
)

func (l *Locker) Provision(ctx context.Context) error { return Operators.Provision(ctx, l) }

func (l *Locker) Revoke(ctx context.Context, key string, token uint64) (Revocation, error) {
	return Operators.Revoke(ctx, l, key, token)
}

func (l *Locker) ForgetRecord(ctx context.Context, key string, token uint64) error {
	return Operators.ForgetRecord(ctx, l, key, token)
}
