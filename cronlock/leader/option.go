package leader

import (
	"cmp"
	"context"
	"os"

	"github.com/lockkit/lockkit/internal/faults"
)

// An Option configures New.
type Option interface{ apply(*config) }

type option func(*config)

func (o option) apply(c *config) { o(c) }

type config struct {
	group, identity string
	elected         func(context.Context, Term)
	lost            func(Term, error)
}

func defaults(group string) config {
	host, _ := os.Hostname()
	return config{group: group, identity: cmp.Or(host, "unknown"),
		elected: func(context.Context, Term) {}, lost: func(Term, error) {}}
}

// OnElected sets what is called when this process has become leader. ctx ends when it does not lead any more
// or is about to resign. OnElected and OnLost are called in turn, never at once: OnLost not before OnElected
// has returned.
func OnElected(f func(ctx context.Context, t Term)) Option {
	return option(func(c *config) { c.elected = f })
}

// OnLost sets what is called when a term has ended. The error is nil after Resign or Close, and then no work of
// the term is left; otherwise it matches ErrLost, and work has been told to stop. This process does
// not campaign again before OnLost has returned and the term's work has ended.
func OnLost(f func(t Term, err error)) Option {
	return option(func(c *config) { c.lost = f })
}

// WithIdentity sets what [Elector.Leader] shows of this process while it leads, 1 to 128 bytes. Default: the name of the
// host.
func WithIdentity(name string) Option { return option(func(c *config) { c.identity = name }) }

const maxIdentity = 128 // what core.Note takes

func (c *config) check(f *faults.List) {
	f.Check(c.group == "", "the group's name is empty: it keeps services apart that share nodes")
	f.Check(c.identity == "" || len(c.identity) > maxIdentity, "the identity has %d bytes, must have 1 to %d", len(c.identity), maxIdentity)
	f.Check(c.elected == nil || c.lost == nil, "a callback is nil")
}
