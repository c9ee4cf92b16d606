package goredis

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// A reply is an error that a server sent.
type reply string

func (r reply) Error() string { return string(r) }
func (reply) RedisError()     {}

// A lasting error says once how to fix it, even if AsLasting is applied several times.
func TestLastingSaysOnceHowToMend(t *testing.T) {
	sent := reply("MOVED 1 127.0.0.1:7000")
	mend, once := TroubleOf(sent).Fix, AsLasting(sent)
	if mend == "" || once == nil {
		t.Fatalf("%v lasts, and is mended so: %q", once, mend)
	}
	for name, err := range map[string]error{"once": once, "twice": AsLasting(once), "of a wrapped one": AsLasting(fmt.Errorf("node 0: %w", once))} {
		if n := strings.Count(err.Error(), mend); n != 1 || !errors.Is(err, sent) {
			t.Errorf("%s: %d times: %v", name, n, err)
		}
	}
	if err := AsLasting(reply("LOADING Redis is loading the dataset in memory")); err != nil {
		t.Errorf("what passes by itself: %v", err)
	}
}
