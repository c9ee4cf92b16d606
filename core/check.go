package core

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

var errSameServer = errors.New("the same server is listed twice")

// A checkup is what is known of a server after it was asked.
type checkup struct {
	id    identity
	fault error // lasting: it cannot be a node until somebody mends it
	err   error // passing: it could not be examined
}

// examine asks a server who it is, and whether it runs what lockkit's scripts call.
func (h *health) examine(n *node) checkup {
	ctx := &nodeContext{context.Background(), time.Now().Add(h.p.nodeTimeout)} //nolint:forbidigo // bounded by the node timeout
	id, err := n.identify(ctx)
	switch fault := lasting(err); {
	case err == nil:
	case mayNot(err) && h.p.guarded:
		return checkup{fault: fmt.Errorf("INFO is denied (%w), which the restart guard needs: allow +info in its ACL, or turn the guard off knowing what it protects from", err)}
	case mayNot(err): // the rest can be found out without it
	case fault != nil:
		return checkup{fault: fault}
	default:
		return checkup{err: err}
	}
	if fault := h.unfit(n, id); fault != nil {
		return checkup{id: id, fault: fault}
	}
	publish := "publish"
	if n.cluster != nil {
		publish = "spublish"
	}
	channel := h.e.keys.Channel(0, "")
	reply, err := probeScript.run(ctx, n.client, append(probeScript.args(2, h.e.keys.Probe(0)), publish, channel))
	fault := lasting(err)
	if denied := parseRights(reply); err == nil {
		err = denied.tryListening(ctx, n.client, n.cluster != nil, channel, time.Until(ctx.deadline))
		fault = cmp.Or(lasting(err), denied.fault(h.p.prefix))
	}
	if fault != nil {
		return checkup{id: id, fault: fault}
	}
	h.askLongest(ctx, n)
	return checkup{id: id, err: err}
}

type onceSlice struct{ *redis.SliceCmd }

func (onceSlice) NoRetry() bool { return true }

// askLongest learns the longest lease in use from the guard records of a node. Where it fails, the node's replies
// tell later.
func (h *health) askLongest(ctx context.Context, n *node) {
	if !h.p.guarded {
		return
	}
	for _, guard := range h.e.guards {
		cmd := redis.NewSliceCmd(ctx, "hmget", guard, "m")
		if n.client.Process(ctx, onceSlice{cmd}) != nil || len(cmd.Val()) != 1 {
			return
		}
		if longest := longestOf(cmd.Val()); longest > 0 && h.e.learn(longest, h.p) {
			h.p.tellLongest(longest, n)
		}
	}
}

// longestOf is the longest lease in use that a guard record knows of, given its field m; 0 if it does not.
func longestOf(fields []any) time.Duration {
	if len(fields) != 1 {
		return 0
	}
	text, _ := fields[0].(string)
	if ms, err := strconv.ParseInt(text, 10, 64); err == nil && 0 < ms && ms <= slack.Milliseconds() {
		return time.Duration(ms) * time.Millisecond
	}
	return 0
}

// identify asks a server who it is.
func (n *node) identify(ctx context.Context) (identity, error) {
	cmd := redis.NewStringCmd(ctx, "info")
	if err := n.client.Process(ctx, once{cmd}); err != nil {
		return identity{}, err
	}
	return identityOf(parseInfo(cmd.Val())), nil
}

// unfit says why a server that told this of itself cannot be a node.
func (h *health) unfit(n *node, id identity) error {
	var faults []error
	for _, f := range id.unfit(h.p.guarded, n.cluster != nil) {
		faults = append(faults, f)
	}
	return errors.Join(faults...)
}

// checkNodes examines all nodes at once, and names those that are unfit. Nodes that do not answer within the
// node timeout are examined later.
func (h *health) checkNodes() error {
	e := h.e
	type answer struct {
		n *node
		checkup
	}
	answers := make(chan answer, len(e.nodes))
	for _, n := range e.nodes {
		n.checking = true
		e.tasks.Go(func() { answers <- answer{n, h.examine(n)} })
	}
	timeout := time.NewTimer(h.p.nodeTimeout)
	defer timeout.Stop()
	var heard nodeSet
	var faults []error
collect:
	for range e.nodes {
		select {
		case a := <-answers:
			heard = heard.with(a.n.index)
			if fault := h.judge(a.n, a.checkup); fault != nil {
				faults = append(faults, fmt.Errorf("%v: %w", a.n, fault))
				if h.p.looking {
					h.tellUnfit(a.n, fault)
				}
			} else if a.err != nil {
				h.tellAway(a.n, a.err)
			}
		case <-timeout.C:
			break collect
		}
	}
	for _, n := range e.nodes {
		if !heard.has(n.index) {
			h.judge(n, checkup{err: errNodeTimeout})
			h.tellAway(n, errNodeTimeout)
		}
	}
	slices.SortFunc(faults, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(faults...)
}

func (h *health) tellUnfit(n *node, fault error) {
	h.p.logger.Error("lockkit: node is unfit and does not take part", n.attrs(), "err", fault)
}

func (h *health) tellAway(n *node, err error) {
	h.p.logger.Warn("lockkit: node cannot be checked, starting without it", n.attrs(), "err", err)
}

// judge books what was found out about a node, and says why it is unfit. One that could not be examined stays
// what it was.
func (h *health) judge(n *node, f checkup) error {
	e := h.e
	h.judging.Lock() // of two nodes that are one server, only one is found to be the second
	defer h.judging.Unlock()
	if f.err == nil && f.fault == nil && f.id.runID != "" && n.cluster == nil {
		for _, other := range e.nodes {
			if other != n && other.takesPart(f.id.runID) && h.isStill(other, f.id.runID) {
				f.fault = fmt.Errorf("%w, it is also %v", errSameServer, other)
			}
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.checking, n.checkAt, n.away = false, e.clock.now().add(recheckEvery), !answered(f.err)
	if f.err == nil {
		n.checked, n.fault, n.runID = true, f.fault, f.id.runID
	}
	return f.fault
}

// isStill asks a node whether it is the server with that id, as it was when it was examined: two servers may have changed
// places since.
func (h *health) isStill(n *node, runID string) bool {
	id, err := n.identify(&nodeContext{context.Background(), time.Now().Add(h.p.nodeTimeout)}) //nolint:forbidigo // bounded by the node timeout
	if err != nil || id.runID == runID {
		return true
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.runID = id.runID
	return false
}

// takesPart reports whether the node is the server with that id, and fit.
func (n *node) takesPart(runID string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.runID == runID && n.fault == nil
}
