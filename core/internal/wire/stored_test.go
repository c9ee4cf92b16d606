package wire

import (
	"strings"
	"testing"
)

// What another wrote is not taken for more than it is.
func TestCarriedByAnother(t *testing.T) {
	t.Parallel()
	all := Holder{"note", "name", "hint"}
	packed := all.Carried()
	for text, want := range map[string]Holder{
		"": {}, packed: all, packed[:14]: {}, packed + "x": {}, "hint": {}, "\x00\x00": {}, "\x00\x00\x00": {}, "\x00\x00\x02ab": {Hint: "ab"},
		"\x00\x00\x41" + strings.Repeat("x", 65): {}, strings.Repeat("x", 256): {},
	} {
		if c := ParseCarried(text); c != want {
			t.Errorf("%q is %+v", text, c)
		}
	}
}
