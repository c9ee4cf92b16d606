package core

import (
	"context"
	"log/slog"
	"strconv"
	"strings"
)

// A keyless handler removes keys of locks from log records, because keys may be secrets of clients. In errors, a hash
// stands for the key. The logger of each Locker has such a handler, so it also covers packages built on this one and
// errors that wrap errors of this package.
type keyless struct{ slog.Handler }

// withoutKeys returns a logger that logs to l without keys.
func withoutKeys(l *slog.Logger) *slog.Logger {
	if _, done := l.Handler().(keyless); done {
		return l
	}
	return slog.New(keyless{l.Handler()})
}

// Handle passes the record on without keys.
func (h keyless) Handle(ctx context.Context, r slog.Record) error {
	clean := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	r.Attrs(func(a slog.Attr) bool {
		clean.AddAttrs(hideKeys(a))
		return true
	})
	return h.Handler.Handle(ctx, clean)
}

// WithAttrs returns a keyless handler with the attributes, without keys.
func (h keyless) WithAttrs(attrs []slog.Attr) slog.Handler {
	clean := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		clean[i] = hideKeys(a)
	}
	return keyless{h.Handler.WithAttrs(clean)}
}

// WithGroup returns a keyless handler with the group.
func (h keyless) WithGroup(name string) slog.Handler {
	return keyless{h.Handler.WithGroup(name)}
}

// hideKeys returns the attribute without the keys of the errors in it.
func hideKeys(a slog.Attr) slog.Attr {
	v := a.Value.Resolve()
	switch v.Kind() {
	case slog.KindGroup:
		members := make([]slog.Attr, len(v.Group()))
		for i, m := range v.Group() {
			members[i] = hideKeys(m)
		}
		return slog.Attr{Key: a.Key, Value: slog.GroupValue(members...)}
	case slog.KindAny:
		err, isError := v.Any().(error)
		if !isError {
			break
		}
		if keys := keysIn(err); keys != nil {
			return slog.String(a.Key, textWithoutKeys(err, keys))
		}
	default: // has no error in it
	}
	return slog.Attr{Key: a.Key, Value: v}
}

// textWithoutKeys returns the text of an error with hashes in place of keys, as OpError.LogValue writes them.
func textWithoutKeys(err error, keys []string) string {
	text := err.Error()
	for _, key := range keys {
		text = strings.ReplaceAll(text, strconv.Quote(key), "key_hash="+keyHash(key))
	}
	return text
}

// keysIn returns the keys of all OpErrors in the tree of an error.
func keysIn(err error) (keys []string) {
	op, isOpError := err.(*OpError) //nolint:errorlint // the tree is walked here
	if isOpError && op != nil && op.Key != "" {
		keys = append(keys, op.Key)
	}

	switch e := err.(type) { //nolint:errorlint // the tree is walked here
	case interface{ Unwrap() error }:
		if next := e.Unwrap(); next != nil {
			keys = append(keys, keysIn(next)...)
		}
	case interface{ Unwrap() []error }:
		for _, next := range e.Unwrap() {
			if next != nil {
				keys = append(keys, keysIn(next)...)
			}
		}
	}
	return keys
}
