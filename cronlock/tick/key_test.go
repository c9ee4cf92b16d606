package tick

import (
	"fmt"
	"strings"
	"testing"
)

// No name of a service or job makes up the key of another, and none is too long for a key.
func TestKeysAreNotForged(t *testing.T) {
	long := strings.Repeat("x", 600)
	names := []string{"a", "b", "a/b", "b/a", "a%2Fb", "a%", "%%", "", ".", "..", "run", "gap", "tick/x", "a/tick/2000-01-01T00:00:00Z",
		"ä", "日本", "a b", "a\x00b", long, long + "y", long + "/", strings.Repeat("ä", 300), strings.Repeat("ä", 300) + "b"}
	of := map[string]string{}
	for _, service := range names {
		if service == "" {
			continue
		}
		for _, name := range names {
			j := &Job{service: &Service{name: service}, name: name}
			of2000, onMonday := tick{id: "2000-01-01T00:00:00Z"}, tick{Tick: Tick{Slot: "Monday/1"}}
			for rest, key := range map[string]string{"run": j.runKey(), "gap": j.key(of2000.gapKey()...), "gap/Monday/1": j.key(onMonday.gapKey()...),
				"tick": j.key(of2000.key()...), "attempt": j.key(of2000.attemptKey(2)...)} {
				what := fmt.Sprintf("%.20q %.20q %s %d %d", service, name, rest, len(service), len(name))
				if other, taken := of[key]; taken {
					t.Errorf("%s and %s have the same key %q", what, other, key)
				}
				of[key] = what
				if len(key) > 512 {
					t.Errorf("%s has a key of %d bytes", what, len(key))
				}
			}
		}
	}
}
