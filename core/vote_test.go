package core

import (
	"regexp"
	"testing"
)

// Verdicts go into metrics and logs by name: each has one, and no two the same.
func TestVerdictNames(t *testing.T) {
	t.Parallel()
	seen := map[string]Verdict{}
	for v := VerdictFailed; v <= VerdictCircuitOpen; v++ {
		name := v.String()
		if other, twice := seen[name]; twice || !regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`).MatchString(name) || name == "unknown" {
			t.Errorf("verdict %d is called %q, as is %d", v, name, other)
		}
		seen[name] = v
	}
	if got := (VerdictCircuitOpen + 1).String(); got != "unknown" {
		t.Errorf("a verdict that is none is called %q", got)
	}
}
