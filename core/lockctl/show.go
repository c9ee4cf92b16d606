package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/lockkit/lockkit/core"
)

func (a *app) show() *cli.Command {
	return &cli.Command{
		Name:      "show",
		Usage:     "who holds a key, who waits for it, and what each node says",
		ArgsUsage: "KEY",
		Description: "KEY is the key as the service knows it. " +
			"Those that adapters make of parts are given with --parts: lockctl show --parts order 42.\n" +
			"The taken slots of its semaphore are listed, too. Slot 0 is the key itself, and slot 1 of api is --parts slot api 1, also for release.\n" +
			"A log line has only a hash of the key: ls lists the keys there are.",
		Flags: []cli.Flag{newPartsFlag()},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			key, err := keyArg(cmd)
			if err != nil {
				return err
			}

			return a.withFleet(ctx, cmd, a.openToInspect, func(ctx context.Context, f *fleet) error {
				return a.showKey(ctx, cmd, f, key)
			})
		},
	}
}

func (a *app) showKey(ctx context.Context, cmd *cli.Command, f *fleet, key string) error {
	// The slots are read at the same time, so that a silent node takes one timeout.
	var slots []*keyState
	var slotsErr error
	var reading sync.WaitGroup
	reading.Go(func() { slots, slotsErr = f.readSlots(ctx, key) })
	s, err := f.readKey(ctx, key)
	reading.Wait()

	err = cmp.Or(err, slotsErr)
	if err != nil {
		return err
	}
	s.Slots = slots

	if asJSON(cmd) {
		j := s.toJSON()
		err = a.printJSON(&j)
	} else {
		a.printState(s)
	}

	if s.State == stateUnknown {
		err = errors.Join(err, errProblemFound)
	}
	return err
}

// showJSON is the output of show.
type showJSON struct {
	Key     string          `json:"key"`
	State   string          `json:"state"` // held, unknown, partial, kept, completed, free
	Holder  *holderJSON     `json:"holder,omitempty"`
	LeftMS  int64           `json:"left_ms,omitempty"` // until the key is free if the holder does not renew the lease
	Waiters int             `json:"waiters"`           // waiting processes; each has at most one call in the queue
	Record  *recordJSON     `json:"record,omitempty"`
	Nodes   []keyOnNodeJSON `json:"nodes"`
	Slots   []lockJSON      `json:"slots,omitempty"` // if the key is a semaphore's: its other slots on which any node has a lease
	Notes   []string        `json:"notes,omitempty"` // on what the nodes disagree, and what that means
}

type recordJSON struct {
	Token  uint64 `json:"token"`
	Result []byte `json:"result,omitempty"` // base64
}

type keyOnNodeJSON struct {
	Node    int         `json:"node"`
	Addr    string      `json:"addr,omitempty"`
	Verdict string      `json:"verdict"` // held, done, gone (neither), quarantined (may have forgotten), failed
	Error   string      `json:"error,omitempty"`
	Holder  *holderJSON `json:"holder,omitempty"`
	LeftMS  int64       `json:"left_ms,omitempty"`
	Record  *recordJSON `json:"record,omitempty"` // without its result
	Waiters int         `json:"waiters"`
	SkewMS  int64       `json:"skew_ms"` // clock of the node minus that of this machine
}

func (s *keyState) toJSON() showJSON {
	j := showJSON{
		Key:     s.Key,
		State:   s.State,
		Holder:  newHolderJSON(s.Holder),
		LeftMS:  s.Left.Milliseconds(),
		Waiters: s.maxWaiters(),
		Record:  newRecordJSON(s.Record),
		Notes:   s.notes(),
	}
	for _, slot := range s.Slots {
		j.Slots = append(j.Slots, slot.toLockJSON())
	}

	for i, n := range s.Nodes {
		k := keyOnNodeJSON{
			Node:    n.Node,
			Addr:    n.Addr,
			Verdict: n.Verdict.String(),
			Holder:  newHolderJSON(n.Holder),
			LeftMS:  n.Remaining.Milliseconds(),
			Record:  newRecordJSON(n.Record),
			Waiters: s.Waiters[i],
			SkewMS:  n.Skew.Milliseconds(),
		}

		if n.Err != nil {
			k.Error = withoutNodeName(n.Err, nodeName(n.Node, n.Addr))
		}
		j.Nodes = append(j.Nodes, k)
	}
	return j
}

func newRecordJSON(r *core.Record) *recordJSON {
	if r == nil {
		return nil
	}
	return &recordJSON{Token: r.Token, Result: r.Result}
}

// printState prints the state of a key for people.
func (a *app) printState(s *keyState) {
	a.printf("%s%s.", lockName(s.Key), s.stateText())
	if len(s.Slots) > 0 {
		a.printf("It is slot 0 of a semaphore, of which %s: see below.", plural(len(s.Slots), "other slot is taken", "other slots are taken"))
	}
	a.printf("")

	if facts := s.facts(); len(facts.rows) > 0 {
		a.printTable(facts)
		a.printf("")
	}

	nodes := table{head: []string{"NODE", "ADDRESS", "SAYS", "TOKEN", "LEFT", "WAITING"}}
	for i := range s.Nodes {
		nodes.add(s.nodeRow(i)...)
	}
	a.printTable(nodes)

	if len(s.Slots) > 0 {
		a.printf("")
		a.printTable(s.slotTable())
	}

	if notes := s.notes(); len(notes) > 0 {
		a.printf("")
		for _, note := range notes {
			a.printf("%s", note)
		}
	}
}

// slotTable returns a table of the other slots that are taken. A process that waits stands in the queues of several slots.
func (s *keyState) slotTable() table {
	slots := newLockTable()
	for _, slot := range s.Slots {
		slots.add(slot.row()...)
	}
	return slots
}

// facts returns a table of the holder, the waiters and the record.
func (s *keyState) facts() (t table) {
	if h := s.Holder; h != nil {
		t.rows = append(t.rows, holderFacts(h)...)
	}
	if n := s.maxWaiters(); n > 0 {
		waiting := plural(n, "process", "processes")
		if len(s.Slots) > 0 {
			waiting += ", for this slot and others"
		}
		t.add("  waiting", waiting)
	}
	if r := s.Record; r != nil {
		t.add("  record", fmt.Sprintf("completed with token %d, result %s", r.Token, resultText(r.Result)))
	}
	return t
}

// nodeRow returns the cells of a node in the table of show.
func (s *keyState) nodeRow(i int) []string {
	n := &s.Nodes[i]
	token, left := "-", "-"
	waiting := strconv.Itoa(s.Waiters[i])

	if n.Holder != nil {
		token = tokenText(n.Holder)
	}
	if n.Remaining > 0 {
		left = formatDuration(n.Remaining)
	}
	if isSilent(n) {
		waiting = "-"
	}

	return []string{strconv.Itoa(n.Node), n.Addr, s.nodeText(n), token, left, waiting}
}

// holderFacts returns the rows of the facts that describe the holder.
func holderFacts(h *core.Holder) (rows [][]string) {
	fact := func(name, text string) { rows = append(rows, []string{"  " + name, text}) }

	if h.Note != "" {
		fact("holder", quoteIfNeeded(h.Note))
	}
	if h.Name != "" {
		fact("for", quoteIfNeeded(h.Name))
	}

	fact("token", tokenText(h))
	if !h.Since.IsZero() {
		fact("since", fmt.Sprintf("%s, %s ago", formatTime(h.Since), formatDuration(max(0, time.Since(h.Since)))))
	}

	fact("left", formatDuration(h.Remaining)+", if nothing more is heard of the holder")
	if h.Hint != "" {
		fact("trace", quoteIfNeeded(h.Hint))
	}
	return rows
}

// resultText returns the result of a record for people.
func resultText(b []byte) string {
	const maxShown = 60
	switch {
	case len(b) == 0:
		return "empty"
	case len(b) > maxShown:
		return fmt.Sprintf("%s… (%d bytes; -o json has all)", strconv.Quote(string(b[:maxShown])), len(b))
	}
	return strconv.Quote(string(b))
}

// stateText returns the predicate of a sentence about the key, with a leading space or punctuation.
func (s *keyState) stateText() string {
	switch s.State {
	case stateHeld:
		return " is held"
	case stateUnknown:
		return ": ownership unknown; " + s.unknownReason()
	case statePartial:
		return " has no holder: some nodes have a lease, but no quorum has the same one"
	case stateKept:
		return fmt.Sprintf(" has no holder, and stays taken for another %s (Cooldown, or it was revoked)", formatDuration(s.Left))
	case stateCompleted:
		return " is completed: it is not granted until the record's retention is over"
	}

	if !s.Known {
		return " is free: no node knows this key"
	}
	return " is free"
}

// unknownReason returns the reason for which it is unknown whether the key is held.
func (s *keyState) unknownReason() string {
	var parts []string
	silent := s.nodesWhere(isSilent)
	if 2*len(silent) >= len(s.Nodes) {
		parts = append(parts, "no quorum of nodes has answered")
	} else if len(silent) > 0 {
		parts = append(parts, nodeList(silent)+" did not answer")
	}

	leases := s.nodesWhere(hasLease)
	if len(leases) > 0 {
		parts = append(parts, "a lease is on "+nodeList(leases))
	}

	forgetful := s.nodesWhere(mayHaveForgotten)
	if len(forgetful) == 1 {
		parts = append(parts, nodeList(forgetful)+" has lost its data")
	} else if len(forgetful) > 1 {
		parts = append(parts, nodeList(forgetful)+" have lost their data")
	}

	if len(leases) > 0 {
		return strings.Join(parts, "; ") + ", and its holder may still be working"
	}
	return strings.Join(parts, "; ") + ", and a holder may still be working"
}

// nodeText describes the answer of a node.
func (s *keyState) nodeText(n *core.KeyOnNode) string {
	switch {
	case n.Err != nil:
		return withoutNodeName(n.Err, nodeName(n.Node, n.Addr))
	case s.hasHoldersLease(n):
		return "held"
	case n.Holder != nil && s.Holder == nil: // the holder is unknown
		return "a lease (" + n.Holder.Attempt + ")"
	case n.Holder != nil:
		return "held by another (" + n.Holder.Attempt + ")"
	case mayHaveForgotten(n):
		return "lost its data, or is new"
	case n.Verdict == core.VerdictHeld:
		return "kept taken"
	case n.Record != nil:
		return "completed"
	}
	return "free"
}
