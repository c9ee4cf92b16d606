package main

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/semaphore"
	"github.com/lockkit/lockkit/testutil"
)

func TestShowHeld(t *testing.T) {
	atDesk(t, 3, func(t *testing.T, d *desk) {
		lease := d.acquire(d.service(), "order:42", core.Name("orders"))
		d.waiting("order:42")
		time.Sleep(2 * time.Second) // before the first renewal
		out := d.well("show", "order:42")
		wantText(t, out, `
order:42 is held.

  holder  web-1/7
  for  orders
  token  946684800000000
  since  2000-01-01 00:00:00 UTC, 2s ago
  left  8s, if nothing more is heard of the holder
  waiting  1 process

NODE  ADDRESS  SAYS  TOKEN  LEFT  WAITING
0  host-1  held  946684800000000  8s  1
1  host-2  held  946684800000000  8s  1
2  host-3  held  946684800000000  8s  1`)
		got := decoded[showJSON](t, d.well("show", "-o", "json", "order:42"))
		if got.Key != "order:42" || got.State != "held" || got.Holder.Token != lease.FencingToken() || got.Holder.Note != "web-1/7" || got.Holder.Name != "orders" || got.Waiters != 1 ||
			got.LeftMS < 7900 || len(got.Nodes) != 3 || got.Nodes[2].Verdict != "held" || got.Notes != nil {
			t.Errorf("%+v", got)
		}
	})
}

// A key that core.Key makes can be given as its parts. Options may stand before and after the command.
func TestShowParts(t *testing.T) {
	atDesk(t, 1, func(t *testing.T, d *desk) {
		l := d.service()
		d.acquire(l, core.Key("order", "42"))
		if out := d.well("show", "--parts", "order", "42"); !strings.HasPrefix(out, "5:order/2:42 is held.") {
			t.Error(out)
		}
		if out := d.well("-o", "json", "show", "--", "-weird"); !strings.Contains(out, `"-weird"`) {
			t.Error(out)
		}
		for _, word := range []string{"help", "h", "ls"} {
			if out := d.well("show", word); !strings.HasPrefix(out, word+" is free: no node knows this key.") {
				t.Error(out)
			}
		}
		if out := d.well("show", "a \x1b[31mkey"); !strings.HasPrefix(out, `"a \x1b[31mkey" is free: `) {
			t.Error(out)
		}
	})
}

// The other slots of a semaphore are shown with its key, also if the key itself is free, and only those that are taken.
func TestShowSlots(t *testing.T) {
	atDesk(t, 3, func(t *testing.T, d *desk) {
		l := d.service()
		limit, err := semaphore.New(l, semaphore.MaxPermits)
		if err != nil {
			t.Fatal(err)
		}
		slot0 := d.acquire(l, "api") // slot 0 is taken, so the permits have others
		var want []int
		for range 3 {
			permit, err := limit.TryAcquire(t.Context(), "api")
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, permit.Slot())
		}
		slices.Sort(want)
		d.acquire(l, "b:api")
		d.waiting(core.Key("slot", "api", fmt.Sprint(want[1])))

		d.nodes[1].Hang()
		began := time.Now()
		out := d.well("show", "api")
		withSlots := time.Since(began)

		// Of a key that is too long for a semaphore, no slots are read.
		began = time.Now()
		d.well("show", strings.Repeat("k", semaphore.MaxKey+1))
		without := time.Since(began)
		if withSlots > without*3/2 {
			t.Errorf("%v, and %v without slots: a silent node is waited for once", withSlots, without)
		}
		if got := decoded[showJSON](t, d.well("show", "b:api", "-o", "json")); got.Slots != nil {
			t.Errorf("slots of a lock: %+v", got.Slots)
		}
		wantParts(t, out, "api is held.\nIt is slot 0 of a semaphore, of which 3 other slots are taken: see below.\n")
		for at, i := range want {
			waiting := map[int]int{1: 1}[at]
			row := regexp.MustCompile(fmt.Sprintf(`(?m)^slot %d of api +held .* 2/3 +%d$`, i, waiting))
			if !row.MatchString(out) {
				t.Errorf("no row like %s in\n%s", row, out)
			}
		}
		if n := strings.Count(out, "slot "); n != len(want)+1 { // and in the sentence above the table
			t.Errorf("%d slots are shown, want %d:\n%s", n-1, len(want), out)
		}

		got := decoded[showJSON](t, d.well("show", "api", "-o", "json"))
		var numbers []int
		for at, s := range got.Slots {
			numbers = append(numbers, s.Slot)
			if s.Waiters != map[int]int{1: 1}[at] {
				t.Errorf("slot %d has %d waiters", s.Slot, s.Waiters)
			}
			if s.SlotOf != "api" || s.State != stateHeld || s.Holder.Note != "web-1/7" {
				t.Errorf("%+v", s)
			}
		}
		if !slices.Equal(numbers, want) {
			t.Errorf("slots %v, want %v", numbers, want)
		}

		d.nodes[1].Up()
		d.releasesSlot("api", got.Slots[2])
		d.release(slot0)
		wantParts(t, d.well("show", "api"), "api is free.\nIt is slot 0 of a semaphore, of which 2 other slots are taken: see below.\n")
	})
}

// releasesSlot takes a slot from its holder as an operator does, by its parts and the token that show prints.
func (d *desk) releasesSlot(key string, s lockJSON) {
	d.t.Helper()
	number, token := fmt.Sprint(s.Slot), fmt.Sprint(s.Holder.Token)
	name := "slot " + number + " of " + key
	got := d.ctl("release", "--parts", "slot", key, number, "--token", token)
	if got.code != exitOK {
		d.t.Errorf("%+v", got)
	}
	wantParts(d.t, got.out, name+" is taken from its holder (web-1/7, ")
	wantParts(d.t, d.well("show", "--parts", "slot", key, number), name+" has no holder, and stays taken for another ")
}

// show describes the state of a key in words.
func TestShowStates(t *testing.T) {
	atDesk(t, 3, func(t *testing.T, d *desk) {
		l := d.service()
		if err := d.acquire(l, "done").Complete(t.Context(), []byte("sent \"it\"")); err != nil {
			t.Fatal(err)
		}
		d.release(d.acquire(l, "kept"), core.Cooldown(time.Hour))
		d.release(d.acquire(l, "free"))
		for key, want := range map[string][]string{
			"done":  {"done is completed: it is not granted", `result "sent \"it\""`, "completed with token 946684800000000"},
			"kept":  {"kept has no holder, and stays taken for another 1h (Cooldown", "kept taken"},
			"free":  {"free is free.", "free"},
			"never": {"never is free: no node knows this key.", "lockctl ls lists the keys", "lockctl show --parts"},
		} {
			wantParts(t, d.well("show", key), want...)
		}
		done := decoded[showJSON](t, d.well("-o", "json", "show", "done"))
		if done.State != "completed" || done.Record == nil || string(done.Record.Result) != "sent \"it\"" || done.Holder != nil || done.Nodes[1].Record == nil {
			t.Errorf("%+v", done)
		}
	})
}

// A disagreement is a state in which the nodes differ about the key k, and the output of show.
type disagreement struct {
	have func(d *desk)
	code int
	want []string
}

// rewritten returns a function that makes a service hold k, and then edits the value of k on each node.
func rewritten(by func(node int, r *testutil.Resource)) func(d *desk) {
	return func(d *desk) {
		d.holds("k")
		for i := range d.nodes {
			d.change(i, "k", func(r *testutil.Resource) { by(i, r) })
		}
	}
}

var disagreements = map[string]disagreement{
	"a node is down": {func(d *desk) { d.holds("k"); d.nodes[1].Down() }, exitOK, []string{"k is held.", "connection refused", "Without node 1 the others are still a quorum."}},
	"no quorum": {func(d *desk) { d.holds("k"); d.nodes[1].Down(); d.nodes[2].Hang() }, exitProblem,
		[]string{"k: ownership unknown; no quorum of nodes has answered; a lease is on node 0, and its holder may still be working.", "With nodes 1 and 2 silent lockctl has no quorum", "lockctl doctor"}},
	"a node forgot it": {func(d *desk) { d.holds("k"); d.nodes[2].Flush() }, exitOK, []string{"k is held.", "The holder's lease is not on node 2", "A renewal brings it back"}},
	"two forgot it": {func(d *desk) { d.holds("k"); d.nodes[1].Flush(); d.nodes[2].Flush() }, exitProblem,
		[]string{"k: ownership unknown; a lease is on node 0; nodes 1 and 2 have lost their data, and its holder may still be working.", "lost its data, or is new"}},
	"all forgot it": {func(d *desk) { d.holds("k"); d.nodes[0].Flush(); d.nodes[1].Flush(); d.nodes[2].Flush() }, exitProblem,
		[]string{"k: ownership unknown; nodes 0, 1 and 2 have lost their data, and a holder may still be working."}},
	"one forgot it, one is down": {func(d *desk) { d.holds("k"); d.nodes[1].Flush(); d.nodes[2].Down() }, exitProblem,
		[]string{"k: ownership unknown; node 2 did not answer; a lease is on node 0; node 1 has lost its data, and its holder may still be working."}},
	"part of a grant": {func(d *desk) {
		d.holds("k")
		d.exec(1, "DEL", "lockkit:{0}r:k")
		d.exec(2, "DEL", "lockkit:{0}r:k")
	}, exitOK, []string{"k has no holder", "A lease on node 0 only", "ends by itself within 10s"}},
	"another on a node": {func(d *desk) {
		d.holds("k")
		d.change(1, "k", func(r *testutil.Resource) { r.Owner, r.Counter = "other", r.Counter+1 })
	}, exitOK, []string{"k is held.", "held by another (other)", "On node 1 another process has a lease"}},
	"tokens differ":            {rewritten(func(i int, r *testutil.Resource) { r.Counter = int64(100 + i) }), exitOK, []string{"k is held.", "unknown", "do not agree on the fencing token (100, 101, 102)", "release takes any of them"}},
	"leases of unequal length": {rewritten(func(i int, r *testutil.Resource) { r.Expiry = time.Now().UnixMilli() + int64(1+i)*1000 - 1 }), exitOK, []string{"2s, if nothing more"}},
	"a record on one": {func(d *desk) {
		d.release(d.acquire(d.service(), "k"))
		d.change(0, "k", func(r *testutil.Resource) {
			r.Record = &testutil.ResourceRecord{Ballot: 7, Origin: 7, KeptUntil: time.Now().Add(time.Hour).UnixMilli()}
		})
	}, exitOK, []string{"k is free.", "A completion record is on node 0 only"}},
	"a record, and held": {rewritten(func(_ int, r *testutil.Resource) {
		r.Record = &testutil.ResourceRecord{Ballot: 7, Origin: 7, KeptUntil: time.Now().Add(time.Hour).UnixMilli()}
	}), exitOK, []string{"k is held.", "It is also recorded as completed, with token 7."}},
	"another layout": {func(d *desk) { d.holds("k"); d.exec(1, "SET", "lockkit:{0}r:k", "\x01old") }, exitOK,
		[]string{"k is held.", "was not written by this version of lockkit"}},
	"a clock": {func(d *desk) { d.holds("k"); d.nodes[1].StepClock(2 * time.Second) }, exitOK, []string{"The clock of node 1 is 2s ahead of this machine's."}},
	"a slow clock": {func(d *desk) { d.holds("k"); d.nodes[1].StepClock(-2 * time.Second) }, exitOK,
		[]string{"The clock of node 1 is 2s behind this machine's."}},
}

// If nodes disagree, show says in what, and what that means.
func TestShowDisagreement(t *testing.T) {
	for name, c := range disagreements {
		t.Run(name, func(t *testing.T) {
			atDesk(t, 3, func(t *testing.T, d *desk) {
				c.have(d)
				got := d.ctl("show", "k")
				if got.code != c.code || got.err != "" {
					t.Errorf("%d, %s", got.code, got.err)
				}
				wantParts(t, got.out, c.want...)
				j := decoded[showJSON](t, d.ctl("show", "k", "-o", "json").out)
				for _, note := range j.Notes {
					wantParts(t, got.out, note[:20])
				}
				for _, n := range d.nodes {
					n.Up()
				}
				synctest.Wait()
			})
		})
	}
}

// If only some nodes have the cooldown of a key, show says when the key can be acquired.
func TestShowKeptOnSome(t *testing.T) {
	atDesk(t, 3, func(t *testing.T, d *desk) {
		d.release(d.acquire(d.service(), "k"), core.Cooldown(time.Hour))
		d.exec(0, "DEL", "lockkit:{0}r:k")
		if out := d.well("show", "k"); !strings.Contains(out, "another 1h") {
			t.Error(out)
		}
		d.exec(1, "DEL", "lockkit:{0}r:k")
		if out := d.well("show", "k"); !strings.HasPrefix(out, "k is free.") {
			t.Error(out)
		}
	})
}

// Texts from other processes and from servers cannot change the state of a terminal.
func TestTerminalIsLeftAlone(t *testing.T) {
	atDesk(t, 3, func(t *testing.T, d *desk) {
		const evil = "a\x1b[2J\x1b]0;title\x07\nb\r\u202e\u009b"
		l := d.service(core.Note(evil))
		d.acquire(l, evil, core.Name(evil), core.Note(evil))
		d.exec(0, "SET", "lockkit:"+evil, "x")
		d.exec(1, "SET", "lockkit:{0}r:bad"+evil, "x")
		for _, args := range [][]string{{"ls"}, {"ls", "--all"}, {"ls", evil}, {"show", evil}, {"show", "bad" + evil}, {"leaks"},
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

// A failed write of the output is an error.
func TestOutputThatIsLost(t *testing.T) {
	atDesk(t, 3, func(t *testing.T, d *desk) {
		d.service()
		got := d.startTo(t.Context(), full{}, new(bytes.Buffer), "leaks")
		if got.code != exitProblem || !strings.Contains(got.err, "disk is full") {
			t.Errorf("%+v", got)
		}
	})
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("disk is full") }

// Numbers out of range are refused, and a limit of 0 does not hide that there are leaks.
func TestSenselessNumbers(t *testing.T) {
	atDesk(t, 1, func(t *testing.T, d *desk) {
		d.service()
		d.exec(0, "SET", "lockkit:foreign", "x")
		for _, args := range [][]string{{"leaks", "--limit", "-1"}} {
			if r := d.ctl(args...); r.code != exitUsage {
				t.Errorf("%q: exit %d, %s", args, r.code, r.out)
			}
		}
		if r := d.ctl("leaks", "--limit", "0"); r.code != exitProblem || strings.Contains(r.out, "No leaks") {
			t.Errorf("exit %d: %s", r.code, r.out)
		}
	})
}
