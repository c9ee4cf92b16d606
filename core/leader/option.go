package leader

import "context"

// An Option configures New.
type Option func(*config)

// A config has the settings of an Elector.
type config struct {
	candidate string
	onElected func(context.Context, Term)
}

// OnElected sets the function that is called when this process becomes leader. Its context ends when the term is lost,
// and when the process starts to resign. If the function returns earlier, the term goes on. This process does not
// campaign again before the function has returned, so a defer in it runs once per term. A panic of the function is
// logged with its stack, and counts as a return. [core.FromContext] returns the lease of the term. The default does
// nothing.
func OnElected(f func(ctx context.Context, t Term)) Option {
	return func(c *config) { c.onElected = f }
}

// WithCandidate sets the name under which [Elector.Leader] shows this process while it leads, 1 to 128 bytes. The
// default is the host name.
func WithCandidate(name string) Option { return func(c *config) { c.candidate = name } }

const maxCandidateLen = 128 // the limit of core.Note
