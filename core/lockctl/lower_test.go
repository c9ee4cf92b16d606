package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/testutil"
)

const guardKey = "lockkit:{0}g"

// longest returns each node's guard record from the longest max TTL on, with the mark if there is one.
func (d *desk) longest() (all []string) {
	for i := range d.nodes {
		record, _ := d.exec(i, "GET", guardKey).(string)
		_, longest, _ := strings.Cut(record, " ")
		longest, _, _ = strings.Cut(longest, " ") // drops a claim
		all = append(all, longest)
	}
	return all
}

func (d *desk) wantLongest(want ...string) {
	d.t.Helper()
	if got := d.longest(); fmt.Sprint(got) != fmt.Sprint(want) {
		d.t.Errorf("nodes have heard of %v, want %v", got, want)
	}
}

// hear makes the nodes, by default all three, record a max TTL that no process uses.
func (d *desk) hear(ttl time.Duration, nodes ...int) {
	d.t.Helper()
	if nodes == nil {
		nodes = []int{0, 1, 2}
	}
	for _, i := range nodes {
		memory, _, _ := strings.Cut(d.exec(i, "GET", guardKey).(string), " ")
		d.exec(i, "SET", guardKey, fmt.Sprintf("%s %d", memory, ttl.Milliseconds()))
	}
}

// provisioned leaves nodes that vote, and that know only the max TTL of services. No service runs.
func (d *desk) provisioned() {
	d.t.Helper()
	d.stop(d.service())
}

func (d *desk) stop(l *core.Locker) {
	d.t.Helper()
	if err := l.Close(d.t.Context()); err != nil {
		d.t.Fatal(err)
	}
	synctest.Wait()
}

// refused checks that lower-max-ttl fails with all these parts in its error, and leaves no mark.
func (d *desk) refused(parts ...string) {
	d.t.Helper()
	got := d.ctl("lower-max-ttl")
	if got.code != exitProblem || got.out != "" {
		d.t.Errorf("%+v", got)
	}
	wantParts(d.t, got.err, append(parts, "not lowered")...)
	for _, longest := range d.longest() {
		if strings.Contains(longest, ">") {
			d.t.Errorf("a mark was left behind: %s", longest)
		}
	}
}

const hour, tenSeconds = "3600000", "10000"

// A process used a long TTL for a moment. After all processes were stopped, an operator lowers the max TTL that the
// nodes have recorded.
func TestLowerMaxTTL(t *testing.T) {
	atDesk(t, 3, func(t *testing.T, d *desk) {
		short, long := d.service(), d.service(core.TTL(time.Hour))
		d.release(d.acquire(long, "k"))
		d.stop(long)
		time.Sleep(3 * time.Hour) // the nodes do not forget it
		d.release(d.acquire(short, "k"))
		d.stop(short)
		d.wantLongest(hour, hour, hour)
		wantText(t, d.well("doctor"), `
NODE  ADDRESS  REACHED  VOTES  LONGEST MAX TTL
0  host-1  yes  yes  1h, heard of 3h ago
1  host-2  yes  yes  1h, heard of 3h ago
2  host-3  yes  yes  1h, heard of 3h ago

WARNING some process uses, or has used, a longer max TTL than 10s: 1h0m0s, since 3h0m0s ago. A node that loses its memory does not vote for so long. It is known to node 0 (host-1), node 1 (host-2), node 2 (host-3) (longer_max_ttl).
        set it in all processes (WithMaxTTL; --max-ttl of lockctl). If none uses it any more, stop all that lock on these nodes, run lockctl lower-max-ttl, and start them.

Nothing of that is a fault or a risk.`)

		wantText(t, d.well("lower-max-ttl"),
			"The longest max TTL that nodes know of is 10s now, and was 1h. A process that has run meanwhile brings 1h back: lockctl doctor shows it.")

		d.wantLongest(tenSeconds, tenSeconds, tenSeconds)
		j := decoded[doctorJSON](t, d.well("doctor", "-o", "json"))
		if len(j.Findings) != 0 || j.Nodes[0].LongestMaxTTLMS != 10_000 || j.Nodes[0].LongestForMS > 1000 {
			t.Errorf("%+v", j)
		}
		wantText(t, d.well("lower-max-ttl"), "Nothing has changed: no node has heard of a longer max TTL than 10s.")
		wantText(t, d.well("lower-max-ttl", "-o", "json"), "{\n  \"max_ttl_ms\": 10000,\n  \"was_ms\": 10000\n}")

		short = d.service() // restarted
		d.nodes[0].RestartEmpty()
		d.nodes[1].RestartEmpty()
		began := time.Now()
		d.acquire(short, "k")
		if waited := time.Since(began); waited > 20*time.Second {
			t.Errorf("nodes that lost their memory vote after %v", waited)
		}
	})
}

// A process that was not stopped brings the longer max TTL back, and doctor shows it.
func TestLoweredMaxTTLThatComesBack(t *testing.T) {
	atDesk(t, 3, func(t *testing.T, d *desk) {
		short, long := d.service(), d.service(core.TTL(time.Hour))
		d.release(d.acquire(long, "k"))
		d.stop(long)
		d.release(d.acquire(short, "k"))                   // it learns the longer max TTL
		time.Sleep(2*time.Hour + 1234567*time.Microsecond) // not when its background requests are due
		d.well("lower-max-ttl")
		d.wantLongest(tenSeconds, tenSeconds, tenSeconds)
		time.Sleep(time.Minute)
		d.wantLongest(hour, hour, hour)
		wantParts(t, d.well("doctor"), "longer_max_ttl")
		if n := decoded[doctorJSON](t, d.well("doctor", "-o", "json")).Nodes[0]; n.LongestMaxTTLMS != 3_600_000 || n.LongestForMS > 60_000 {
			t.Errorf("%+v", n)
		}
	})
}

// All nodes must answer.
func TestLowerMaxTTLWithoutANode(t *testing.T) {
	for what, trouble := range map[string]func(n *testutil.Node){
		"down": func(n *testutil.Node) { n.Down() }, "hangs": func(n *testutil.Node) { n.Hang() }, "replica": func(n *testutil.Node) { n.SetReplica(true) },
	} {
		t.Run(what, func(t *testing.T) {
			atDesk(t, 3, func(t *testing.T, d *desk) {
				d.provisioned()
				d.hear(time.Hour)
				trouble(d.nodes[1])
				got := d.ctl("lower-max-ttl")
				if got.code != exitProblem {
					t.Errorf("%+v", got)
				}
				wantParts(t, got.err, "not lowered: node 1 ("+d.nodes[1].Name(), "all nodes have to answer, lockctl doctor says what is wrong")
				d.nodes[1].Up()
				d.nodes[1].SetReplica(false)
				d.wantLongest(hour, hour, hour)
			})
		})
	}
}

// A node that may have forgotten a lease must vote first, even if no process has asked it since.
func TestLowerMaxTTLInQuarantine(t *testing.T) {
	atDesk(t, 3, func(t *testing.T, d *desk) {
		d.provisioned()
		d.hear(time.Hour)
		d.nodes[1].RestartEmpty()
		d.refused("node 1 ("+d.nodes[1].Name()+") is in quarantine for another 1h", "call again after that")
		time.Sleep(20 * time.Minute) // the refused call began the quarantine
		d.refused("is in quarantine for another 40m")
		time.Sleep(40 * time.Minute)
		d.well("lower-max-ttl")
		d.wantLongest(tenSeconds, tenSeconds, tenSeconds)
	})
}

// A node that has recorded a shorter max TTL stays in quarantine for the longest one that any node has recorded.
func TestLowerMaxTTLThatOneNodeKnows(t *testing.T) {
	atDesk(t, 3, func(t *testing.T, d *desk) {
		short := d.service()
		d.release(d.acquire(short, "k"))
		d.nodes[1].RestartEmpty()
		time.Sleep(time.Minute)
		d.stop(short)
		wantParts(t, d.well("doctor"), "All is well.")
		d.hear(time.Hour, 2)
		d.refused("node 1 (" + d.nodes[1].Name() + ") is in quarantine for another 59m")
		time.Sleep(time.Hour)
		d.well("lower-max-ttl")
		d.wantLongest(tenSeconds, tenSeconds, tenSeconds)
	})
}

// A key that may be a longer lease, on any node, prevents the change.
func TestLowerMaxTTLUnderALongerLease(t *testing.T) {
	lease := func(d *desk, owner string, left time.Duration) {
		r := testutil.Resource{Expiry: time.Now().Add(left).UnixMilli(), Counter: 7, Before: -1, Owner: owner}
		d.exec(1, "SET", "lockkit:{0}r:k", r.String(), "PX", (48 * time.Hour).Milliseconds())
	}
	for _, c := range []struct {
		name string
		key  func(d *desk)
		want string // empty: the key prevents nothing
	}{
		{"a lease", func(d *desk) { lease(d, "attempt", 10*time.Second+time.Millisecond) }, "k is leased for another 10s"},
		{"much longer", func(d *desk) { lease(d, "attempt", 50*time.Minute) }, "k is leased for another 50m"},
		{"no longer", func(d *desk) { lease(d, "attempt", 10*time.Second) }, ""},
		{"revoked", func(d *desk) { lease(d, "~", time.Minute) }, "k is leased for another 1m"},
		{"a cooldown", func(d *desk) { lease(d, "~attempt", time.Hour) }, ""},
		{"released", func(d *desk) { lease(d, "", time.Hour) }, ""},
		{"of another version", func(d *desk) { d.exec(1, "SET", "lockkit:{0}r:k", "\x02 what was") }, "k is not of this version of lockkit"},
		{"of another type", func(d *desk) { d.exec(1, "ZADD", "lockkit:{0}r:k", 1, "a") }, "k is not of this version of lockkit"},
		{"another prefix", func(d *desk) { d.exec(1, "SET", "other:{0}r:k", "x") }, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			atDesk(t, 3, func(t *testing.T, d *desk) {
				d.provisioned()
				d.hear(time.Hour)
				c.key(d)
				if c.want == "" {
					d.well("lower-max-ttl")
					d.wantLongest(tenSeconds, tenSeconds, tenSeconds)
					return
				}
				d.refused("on node 1 ("+d.nodes[1].Name()+"), "+c.want, "lockctl release")
				d.wantLongest(hour, hour, hour)
			})
		})
	}
}

// A meanwhile is a hook of clients. It calls do once, just before a step of the command: "scan", or a step that a node
// is asked for.
type meanwhile struct {
	step string
	done atomic.Bool
	do   func()
}

func (m *meanwhile) DialHook(next redis.DialHook) redis.DialHook { return next }

func (m *meanwhile) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (m *meanwhile) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		args := cmd.Args()
		if args[0] == m.step || len(args) > 3 && args[len(args)-3] == m.step {
			if !m.done.Swap(true) {
				m.do()
			}
		}
		return next(ctx, cmd)
	}
}

// If a process names a longer max TTL while the command runs, the value is not lowered, because the process may have a
// lease by now.
func TestLowerMaxTTLWhileItIsUsed(t *testing.T) {
	for _, step := range []string{"scan", "check", "lower"} {
		t.Run(step, func(t *testing.T) {
			atDesk(t, 3, func(t *testing.T, d *desk) {
				long := d.service(core.TTL(time.Hour))
				d.release(d.acquire(long, "before")) // the nodes are no longer new
				d.hook = &meanwhile{step: step, do: func() { d.acquire(long, "k") }}
				if want := "a process that uses, or has heard of, a longer max TTL than 10s has asked node"; step != "scan" {
					d.refused(want, "stop all processes")
				} else { // the scan finds the lease
					d.refused("k is leased for another 1h")
				}
				d.wantLongest(hour, hour, hour)
			})
		})
	}
}

// A node that loses its memory before its leases were read may have forgotten one. Then no node's value is lowered.
func TestLowerMaxTTLAfterALossOfMemory(t *testing.T) {
	atDesk(t, 3, func(t *testing.T, d *desk) {
		d.provisioned()
		d.hear(time.Hour)
		d.hook = &meanwhile{step: "scan", do: func() { d.nodes[1].Flush() }}
		d.refused("has asked node 1 meanwhile (or another lower-max-ttl has, or the memory was lost)")
		if got := d.longest(); got[0] != hour || got[2] != hour {
			t.Errorf("lowered: %v", got)
		}
	})
}

// A command that ends early leaves no mark, and says what may have happened.
func TestLowerMaxTTLThatEndsEarly(t *testing.T) {
	atDesk(t, 3, func(t *testing.T, d *desk) {
		d.provisioned()
		d.hear(time.Hour)
		ctx, cancel := context.WithCancel(t.Context())
		d.hook = &meanwhile{step: "scan", do: cancel}
		got := d.start(ctx, new(bytes.Buffer), "lower-max-ttl")
		if got.code != exitProblem || !strings.Contains(got.err, "the lowering may have been done") {
			t.Errorf("%+v", got)
		}
		d.wantLongest(hour, hour, hour)
	})
}

// Without the restart guard there is nothing to lower, and one node has it only with --guard. --max-ttl sets the new
// value.
func TestLowerMaxTTLOfOneNode(t *testing.T) {
	atDesk(t, 1, func(t *testing.T, d *desk) {
		d.stop(d.service(core.WithRestartGuard(true)))
		d.hear(time.Hour, 0)
		if got := d.ctl("lower-max-ttl"); got.code != exitUsage || !strings.Contains(got.err, "the restart guard is off") {
			t.Errorf("%+v", got)
		}
		d.wantLongest(hour)
		d.well("lower-max-ttl", "--guard", "--max-ttl", "1m")
		d.wantLongest("60000")
	})
}
