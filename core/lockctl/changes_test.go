package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
)

// changing has the commands that change something, with their arguments and a name for the change.
var changing = map[string]struct {
	args  []string
	what  string
	first func(*desk) // prepares the nodes; may be nil
}{
	"release":       {[]string{"k", "--token"}, "the release", nil},
	"forget-record": {[]string{"done", "--token"}, "the drop of the record", nil},
	"provision":     {nil, "the declaration", nil},
	"lower-max-ttl": {nil, "the lowering", func(d *desk) { d.hear(time.Hour) }},
}

// All commands that may write are in the table above. The others only read.
func TestChangingCommands(t *testing.T) {
	looks := map[string]bool{"doctor": true, "ls": true, "show": true, "leaks": true, "ready": true, "fence-schema": true}
	for _, c := range (&app{}).commands() {
		if _, changes := changing[c.Name]; changes == looks[c.Name] {
			t.Errorf("%s neither looks nor changes something", c.Name)
		}
	}
}

// If a command that may have changed something ends early, its error says so.
func TestChangesThatEndEarly(t *testing.T) { //nolint:gocognit // cases in cases
	for name, c := range changing {
		for _, interrupted := range []bool{false, true} {
			for after := 100 * time.Millisecond; after <= 700*time.Millisecond; after += 50 * time.Millisecond {
				t.Run(fmt.Sprint(name, after, interrupted), func(t *testing.T) {
					atDesk(t, 3, func(t *testing.T, d *desk) {
						l := d.service()
						tokens := map[string]uint64{}
						for _, key := range []string{"k", "done"} {
							lease := d.acquire(l, key)
							tokens[key] = lease.FencingToken()
							if key == "done" {
								if err := lease.Complete(t.Context(), nil); err != nil {
									t.Fatal(err)
								}
							}
						}
						if c.first != nil {
							c.first(d)
						}
						for _, n := range d.nodes {
							n.SlowReplies(50 * time.Millisecond)
						}

						args := append([]string{name}, c.args...)
						if c.args != nil {
							args = append(args, fmt.Sprint(tokens[c.args[0]]))
						}

						ctx := t.Context()
						if interrupted {
							var cancel context.CancelFunc
							ctx, cancel = context.WithTimeout(ctx, after)
							defer cancel()
						} else {
							args = append(args, "--timeout", after.String())
						}

						got := d.start(ctx, new(bytes.Buffer), args...)
						if got.code != exitOK && !strings.Contains(got.err, c.what+" may have been done") {
							t.Errorf("%v: exit %d, %s%s", args, got.code, got.out, got.err)
						}
					})
				})
			}
		}
	}
}

// A change whose result cannot be printed is reported as done.
func TestChangeThatCannotBePrinted(t *testing.T) {
	for _, format := range []string{"table", "json"} {
		atDeskOf(t, format, func(t *testing.T, d *desk) {
			l := d.service()
			lease := d.acquire(l, "k")
			got := d.startTo(t.Context(), full{}, new(bytes.Buffer), "release", "k", "--token", fmt.Sprint(lease.FencingToken()), "-o", format)
			if got.code != exitProblem || !strings.Contains(got.err, "the release is done, but its result could not be printed") {
				t.Errorf("%+v", got)
			}
		})
	}
}

// Output that cannot be printed is an error, also if it would have reported a problem.
func TestOutputThatCannotBePrinted(t *testing.T) {
	for _, isWell := range []bool{true, false} {
		atDeskOf(t, fmt.Sprint("all is well: ", isWell), func(t *testing.T, d *desk) {
			if !isWell {
				d.nodes[0].Down()
			}
			got := d.startTo(t.Context(), full{}, new(bytes.Buffer), "doctor")
			if got.code != exitProblem || !strings.Contains(got.err, "the output could not be printed: disk is full") {
				t.Errorf("%+v", got)
			}
		})
	}
}

func atDeskOf(t *testing.T, name string, f func(t *testing.T, d *desk)) {
	t.Run(name, func(t *testing.T) { atDesk(t, 3, f) })
}

// Texts that differ are different texts in JSON, whatever bytes they have, in every answer.
func TestJSONIsExact(t *testing.T) {
	atDesk(t, 3, func(t *testing.T, d *desk) {
		l := d.service()
		keys := []string{"a\xff", "a\xfe", "a\ufffd", `a\xff`, `"a\xff"`, `"`, "a"}
		for _, key := range keys {
			d.acquire(l, key, core.Note("note "+key))
			d.exec(0, "SET", "lockkit:theirs:"+key, "x")
		}
		seen := map[string]map[string]bool{"key": {}, "note": {}, "leak": {}, "show": {}}
		for _, lock := range decoded[lsJSON](t, d.ctl("ls", "-o", "json").out).Locks {
			seen["key"][lock.Key], seen["note"][lock.Holder.Note] = true, true
		}
		for _, leak := range decoded[leaksJSON](t, d.ctl("leaks", "-o", "json").out).Leaks {
			seen["leak"][leak.RedisKey] = true
		}
		for _, key := range keys {
			seen["show"][decoded[showJSON](t, d.ctl("show", "-o", "json", "--", key).out).Key] = true
		}
		for what, texts := range seen {
			if len(texts) != len(keys) {
				t.Errorf("%s: %d of %d: %v", what, len(texts), len(keys), texts)
			}
		}
		if !seen["key"]["a"] || !seen["key"]["a\ufffd"] || !seen["key"][`a\xff`] {
			t.Errorf("texts that need no literal are not themselves: %v", seen["key"])
		}
	})
}

// Invisible characters are escaped.
func TestInvisibleKeys(t *testing.T) {
	for text, want := range map[string]string{"a\u3164": `"a\u3164"`, "a\ufe0f": `"a\ufe0f"`, "a\u115f": `"a\u115f"`, "café": "café", "a\u200b": `"a\u200b"`} {
		if got := quoteIfNeeded(text); got != want {
			t.Errorf("%q is %s, want %s", text, got, want)
		}
	}
}
