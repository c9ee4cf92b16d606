package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"unicode"

	"github.com/lockkit/lockkit/core"
)

// What others have written, and servers answer, does nothing to a terminal.
func TestTerminalIsLeftAlone(t *testing.T) {
	atDesk(t, 3, func(t *testing.T, d *desk) {
		const evil = "a\x1b[2J\x1b]0;title\x07\nb\r\u202e\u009b"
		l := d.service(core.Note(evil))
		d.acquire(l, evil, core.Name(evil), core.Note(evil))
		d.exec(0, "SET", "lockkit:"+evil, "x")
		d.exec(1, "SET", "lockkit:{0}r:bad"+evil, "x")
		for _, args := range [][]string{{"ls"}, {"ls", "--all"}, {"ls", evil}, {"show", evil}, {"show", "bad" + evil}, {"leaks"}, {"watch", "--for", "1s", evil},
			{"release", evil, "--token", "1"}, {"forget-record", evil, "--token", "1"}, {evil}, {"--prefix", evil, "ls"}, {"show", strings.Repeat(evil, 99)}} {
			r := d.ctl(args...)
			for line := range strings.Lines(r.out + r.err) {
				if strings.ContainsFunc(strings.TrimSuffix(line, "\n"), func(r rune) bool { return !unicode.IsPrint(r) }) {
					t.Errorf("%q: %q", args, line)
				}
			}
		}
	})
	if got := oneLine(errors.New("ERR \x1b[2J\x07")); strings.ContainsFunc(got, unicode.IsControl) {
		t.Errorf("%q", got)
	}
}

// What could not be written is an error.
func TestOutputThatIsLost(t *testing.T) {
	atDesk(t, 3, func(t *testing.T, d *desk) {
		d.service()
		got := d.startTo(t.Context(), full{}, new(bytes.Buffer), "leaks")
		if got.code != exitWrong || !strings.Contains(got.err, "disk is full") {
			t.Errorf("%+v", got)
		}
	})
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("disk is full") }

// Numbers that make no sense are refused, and a limit hides nothing.
func TestSenselessNumbers(t *testing.T) {
	atDesk(t, 1, func(t *testing.T, d *desk) {
		d.service()
		d.exec(0, "SET", "lockkit:foreign", "x")
		for _, args := range [][]string{{"leaks", "--limit", "-1"}, {"watch", "k", "--for", "-1s"}} {
			if r := d.ctl(args...); r.code != exitUsage {
				t.Errorf("%q: exit %d, %s", args, r.code, r.out)
			}
		}
		if r := d.ctl("leaks", "--limit", "0"); r.code != exitWrong || strings.Contains(r.out, "No leaks") {
			t.Errorf("exit %d: %s", r.code, r.out)
		}
	})
}
