package core

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

// No log line of lockkit has a key, however an error that names it is wrapped, and wherever it is in the line.
func TestLogsHaveNoKeys(t *testing.T) {
	t.Parallel()
	const key = "invoice:\"secret\""
	inner := &OpError{Op: OpAcquire, Key: key, Err: ErrHeld}
	var typed *OpError
	for name, err := range map[string]error{
		"as it is":       inner,
		"wrapped":        fmt.Errorf("job: %w", inner),
		"wrapped twice":  fmt.Errorf("job: %w; %w", errors.New("x"), fmt.Errorf("again: %w", inner)),
		"joined":         errors.Join(errors.New("x"), inner),
		"two operations": errors.Join(inner, &OpError{Op: OpRelease, Key: "other secret", Err: inner}),
		"nothing in it":  errors.New("x"),
		"none":           typed,
	} {
		var out bytes.Buffer
		l := withoutKeys(withoutKeys(slog.New(slog.NewTextHandler(&out, nil))))
		if err != error(typed) {
			l.Warn("a", "err", err)
			l.With("err", err).WithGroup("g").Warn("b", slog.Group("h", slog.Any("err", err)), "n", 1)
		}
		l.Warn("c", "err", nil)

		text := out.String()
		if strings.Contains(text, "secret") || strings.Contains(name, "wrapped") && strings.Count(text, keyHash(key)) < 3 {
			t.Errorf("%s: %s", name, text)
		}
		if err != error(typed) && !strings.Contains(text, "g.n=1") {
			t.Errorf("%s: an attribute is lost: %s", name, text)
		}
	}
}

// The logger of a Locker writes no keys, even for packages that get it from there.
func TestLoggerOfALockerHasNoKeys(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		var out bytes.Buffer
		l := w.process(WithLogger(slog.New(slog.NewTextHandler(&out, nil))))
		l.Logger().Warn("x", "err", fmt.Errorf("job: %w", &OpError{Op: OpAcquire, Key: "secret", Err: ErrHeld}))
		if text := out.String(); strings.Contains(text, "secret") || !strings.Contains(text, keyHash("secret")) {
			t.Error(text)
		}
	})
}
