package main

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/semaphore"
	"github.com/lockkit/lockkit/testutil"
)

func TestLs(t *testing.T) {
	atDesk(t, 3, func(t *testing.T, d *desk) {
		l := d.service()
		d.acquire(l, "order:1", core.Name("billing"))
		d.acquire(l, "order:2", core.TTL(8*time.Second))
		time.Sleep(2 * time.Second)
		d.release(d.acquire(l, "order:3"))
		if err := d.acquire(l, "order:4").Complete(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		d.release(d.acquire(l, "order:5"), core.Cooldown(time.Hour))
		d.acquire(l, "other")
		d.acquire(l, "order:6")
		d.exec(0, "DEL", "lockkit:{0}r:order:6")
		d.exec(2, "DEL", "lockkit:{0}r:order:6")
		d.waiting("order:2")
		d.exec(1, "ZADD", "lockkit:{0}w:order:2", 2, "P lockkit:{0}c:another name") // which the other nodes do not know yet

		wantText(t, d.well("ls", "order:*"), `
KEY  STATE  HOLDER  TOKEN  HELD FOR  LEFT  NODES  WAITING
order:1  held  web-1/7 (billing)  946684800000000  2s  8s  3/3  0
order:2  held  web-1/7  946684800000000  2s  6s  3/3  2
order:6  partial  -  -  -  -  1/3  0`)
		if out := d.well("ls"); !strings.Contains(out, "\nother ") || strings.Contains(out, "order:3") || strings.Contains(out, "order:5") {
			t.Error(out)
		}
		if out := d.well("ls", "nothing*"); out != "No lock under lockkit: that matches nothing* is held.\n" {
			t.Error(out)
		}

		got := decoded[lsJSON](t, d.well("ls", "-o", "json"))
		if len(got.Locks) != 4 || got.Locks[1].Key != "order:2" || got.Locks[1].Holder.Token == 0 || got.Locks[1].Waiters != 2 || got.Locks[0].Waiters != 0 || len(got.Locks[2].Nodes) != 1 || got.Silent != nil {
			t.Errorf("%+v", got)
		}
		if none := d.well("ls", "x*", "-o", "json"); !strings.Contains(none, `"locks": []`) {
			t.Error(none)
		}

		d.env["LOCKKIT_PREFIX"] = "another:"
		if out := d.well("ls"); !strings.HasPrefix(out, "No lock under another:") {
			t.Error(out)
		}
		if out := d.well("ls", "--prefix", "lockkit:"); !strings.Contains(out, "order:1") {
			t.Error(out)
		}
	})
}

// ls lists the locks that it could read, and names the nodes that it could not read.
func TestLsWithNodesInTrouble(t *testing.T) {
	atDesk(t, 3, func(t *testing.T, d *desk) {
		d.acquire(d.service(), "k")
		d.nodes[0].Down()
		got := d.ctl("ls")
		if got.code != exitProblem || !strings.Contains(got.out, "k  ") || !strings.Contains(got.out, "held") || !strings.Contains(got.out, "2/3") ||
			!strings.HasPrefix(got.err, fmt.Sprintf("lockctl: not read: node 0 (%s): ", d.nodes[0].Name())) {
			t.Errorf("%+v", got)
		}
		if j := decoded[lsJSON](t, d.ctl("ls", "-o", "json").out); len(j.Silent) != 1 || j.Silent[0].Node != 0 || j.Locks[0].State != "held" {
			t.Errorf("%+v", j)
		}
		d.nodes[1].Hang()
		if got := d.ctl("ls"); got.code != exitProblem || !strings.Contains(got.out, "unknown") || !strings.Contains(got.err, "node 1") {
			t.Errorf("%+v", got)
		}
		if got := d.ctl("ls", "nothing*"); got.code != exitProblem || got.out != "1 of 3 nodes were read, too few to say that nothing is held.\n" {
			t.Errorf("%+v", got)
		}
		d.nodes[2].Down()
		if got := d.ctl("ls"); got.code != exitProblem || got.out != "" && got.out != "\n" || !strings.Contains(got.err, "no node has answered; lockctl doctor") {
			t.Errorf("%+v", got)
		}
	})
}

// If the operator's user may not read, the error names the missing rights. It does not point to doctor, because doctor
// finds no fault in the rights of a service.
func TestLsWithoutTheRight(t *testing.T) {
	atDesk(t, 3, func(t *testing.T, d *desk) {
		d.holds("k")
		const noRight = "NOPERM this user has no permissions to run the 'scan' command"
		d.nodes[0].Refuse("SCAN", noRight)
		d.waiting("k")
		if got := d.ctl("ls"); got.code != exitProblem || !strings.Contains(got.out, "2/3    1") || strings.Count(got.err, "rights of the operator") != 1 {
			t.Errorf("%+v", got)
		}
		d.nodes[1].Refuse("SCAN", noRight)
		d.nodes[2].Refuse("SCAN", noRight)
		for _, command := range []string{"ls", "leaks"} {
			got := d.ctl(command)
			if got.code != exitProblem || !strings.HasSuffix(got.err, "\nlockctl: no node lets this user look\n") || !strings.Contains(got.err, operatorRightsHint) {
				t.Errorf("%s: %+v", command, got)
			}
			if strings.Contains(got.err, "doctor") {
				t.Errorf("%s sends to doctor: %+v", command, got)
			}
		}
		d.nodes[2].Down()
		if got := d.ctl("ls"); got.code != exitProblem || !strings.Contains(got.err, "rights of the operator") || !strings.Contains(got.err, "lockctl doctor says") {
			t.Errorf("%+v", got)
		}
	})
}

// lockctl works while one of the nodes is a replica, although no service can start then.
func TestCommandsWithAReplicaAmongTheNodes(t *testing.T) {
	atDesk(t, 3, func(t *testing.T, d *desk) {
		l := d.service()
		token := fmt.Sprint(d.acquire(l, "k").FencingToken())
		done := d.acquire(l, "done")
		if err := done.Complete(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		d.nodes[1].SetReplica(true)
		d.nodes[1].Refuse("SET", "READONLY You can't write against a read only replica.")
		if _, err := core.New(d.clients()); err == nil {
			t.Fatal("a service starts")
		}
		if got := d.ctl("ls"); got.code != exitProblem || !strings.Contains(got.out, "2/3") || !strings.Contains(got.err, "node 1 (") || !strings.Contains(got.err, "it is a replica now") {
			t.Errorf("%+v", got)
		}
		wantParts(t, d.well("show", "k"), "k is held.", "Without node 1 the others are still a quorum.")
		wantParts(t, d.ctl("doctor").out, "FAULT   node 1 ", "is a slave of another server")
		if got := d.ctl("release", "k", "--token", token); got.code != exitOK || !strings.Contains(got.out, "k is taken from its holder") {
			t.Errorf("%+v", got)
		}
		got := d.ctl("forget-record", "done", "--token", fmt.Sprint(done.FencingToken()))
		if got.code != exitProblem || !strings.Contains(got.err, "not forgotten by all nodes, which it takes: node 1 (") {
			t.Errorf("%+v", got)
		}
	})
}

// Ten thousand keys are read in few requests. At 40 ms for each request, that takes well below ten seconds.
func TestLsOfManyKeys(t *testing.T) {
	atDesk(t, 3, func(t *testing.T, d *desk) {
		d.holds("k-0")
		held, _ := d.exec(0, "GET", "lockkit:{0}r:k-0").(string)
		const keys = 10_000
		for i := range d.nodes {
			for k := range keys {
				d.exec(i, "SET", fmt.Sprint("lockkit:{0}r:k-", k), held, "PX", 60_000)
			}
		}

		last := fmt.Sprint("k-", keys-1)
		d.waiting(last)

		scans := d.nodes[0].Calls()["SCAN"]
		var requests atomic.Int32
		for _, n := range d.nodes {
			n.OnRequest(func(args []string) testutil.Action {
				if args[0] == "SCAN" || args[0] == "TIME" { // one for a batch of names, and one for a batch of values
					requests.Add(1)
				}
				return testutil.Action{}
			})
		}

		got := decoded[lsJSON](t, d.well("ls", "-o", "json"))
		if len(got.Locks) != keys || got.Locks[0].State != "held" || len(got.Locks[keys-1].Nodes) != 3 {
			t.Fatalf("%d keys", len(got.Locks))
		}
		if k := got.Locks[keys-1]; k.Key != last || k.Waiters != 1 {
			t.Errorf("%+v, want %s, for which a process waits", k, last)
		}
		if most := int32(len(d.nodes) * 2 * (keys/scanBatch + 2)); requests.Load() > most {
			t.Errorf("%d requests, want %d at most", requests.Load(), most)
		}
		if n := d.nodes[0].Calls()["SCAN"] - scans; n > keys/scanBatch+2 {
			t.Errorf("%d times SCAN", n)
		}
	})
}

// The slots of a semaphore are listed behind its key, in the order of their numbers, also with a pattern on the key.
func TestLsGroupsSlots(t *testing.T) {
	atDesk(t, 1, func(t *testing.T, d *desk) {
		l := d.service()
		limit, err := semaphore.New(l, 12)
		if err != nil {
			t.Fatal(err)
		}
		for range 12 {
			if _, err := limit.TryAcquire(t.Context(), "api"); err != nil {
				t.Fatal(err)
			}
		}
		d.acquire(l, "apis")
		d.acquire(l, "b:api")
		permit, err := limit.TryAcquire(t.Context(), "b:api")
		if err != nil || permit.Slot() == 0 {
			t.Fatalf("slot 0 is taken, and others are free: %v", err)
		}

		names := func(out string) (first []string) {
			for line := range strings.Lines(out) {
				name, _, _ := strings.Cut(line, "  ")
				first = append(first, strings.TrimSpace(name))
			}
			return first[1:]
		}
		want := []string{"api"}
		for i := range 11 {
			want = append(want, fmt.Sprintf("slot %d of api", i+1))
		}
		if got := names(d.well("ls", "api")); !slices.Equal(got, want) {
			t.Errorf("ls api: %q", got)
		}
		other := fmt.Sprintf("slot %d of b:api", permit.Slot())
		if got := names(d.well("ls")); !slices.Equal(got, append(want, "apis", "b:api", other)) {
			t.Errorf("ls: %q", got)
		}
		got := decoded[lsJSON](t, d.well("ls", "api", "-o", "json"))
		if len(got.Locks) != 12 || got.Locks[3].SlotOf != "api" || got.Locks[3].Slot != 3 || got.Locks[0].SlotOf != "" {
			t.Errorf("%+v", got)
		}
	})
}
