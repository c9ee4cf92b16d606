package core

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// checkClients finds what is wrong with a list of clients without asking anybody.
func checkClients(clients []redis.UniversalClient) error {
	var faults []error
	if len(clients) == 0 || len(clients) > maxNodes {
		faults = append(faults, fmt.Errorf("%d nodes, must be 1 to %d", len(clients), maxNodes))
	}
	seen := map[redis.UniversalClient]int{}
	for i, c := range clients {
		if v := reflect.ValueOf(c); c == nil || v.Kind() == reflect.Pointer && v.IsNil() {
			faults = append(faults, fmt.Errorf("node %d: client is nil", i))
			continue
		}
		if _, ring := c.(*redis.Ring); ring {
			faults = append(faults, fmt.Errorf("node %d: a Ring spreads keys over several servers; pass its servers as nodes", i))
		}
		if !reflect.TypeOf(c).Comparable() {
			continue
		}
		if first, twice := seen[c]; twice {
			faults = append(faults, fmt.Errorf("node %d: the same client as node %d", i, first))
			continue
		}
		seen[c] = i
	}
	return errors.Join(faults...)
}

// identity is what a server says of itself.
type identity struct {
	runID, role, policy, maxMemory string
	historic                       bool // reports its replication history
}

// checkNodes asks all nodes at once who they are, and names those that are unfit. Nodes that do not answer
// within the node timeout are checked when they do.
func (l *Locker) checkNodes() error {
	e := l.e
	type answer struct {
		n   *node
		id  identity
		err error
	}
	answers := make(chan answer, len(e.nodes))
	ctx := &nodeContext{context.Background(), time.Now().Add(l.p.nodeTimeout)}
	for _, n := range e.nodes {
		e.tasks.Go(func() {
			id, err := n.identify(ctx)
			answers <- answer{n, id, err}
		})
	}
	timeout := time.NewTimer(l.p.nodeTimeout)
	defer timeout.Stop()
	var heard nodeSet
	var faults []error
	servers := map[string]*node{}
	for range e.nodes {
		select {
		case a := <-answers:
			heard = heard.with(a.n.index)
			if a.err != nil {
				l.p.logger.Warn("lockkit: node cannot be reached, starting without it", "why", a.n.String()+": "+a.err.Error())
				continue
			}
			if fault := l.unfit(a.n, a.id); fault != nil {
				faults = append(faults, fault)
			}
			if _, cluster := a.n.client.(*redis.ClusterClient); cluster || a.id.runID == "" {
				continue
			}
			if first := servers[a.id.runID]; first != nil {
				faults = append(faults, fmt.Errorf("%v: %w, it is also %v", a.n, errSameServer, first))
			}
			servers[a.id.runID] = a.n
			a.n.mu.Lock()
			a.n.runID, a.n.checked = a.id.runID, true
			a.n.mu.Unlock()
		case <-timeout.C:
			for _, n := range e.nodes {
				if !heard.has(n.index) {
					l.p.logger.Warn("lockkit: node cannot be reached, starting without it", "why", n.String()+": "+errNodeTimeout.Error())
				}
			}
			return errors.Join(faults...)
		}
	}
	return errors.Join(faults...)
}

// unfit says why a server cannot be a node.
func (l *Locker) unfit(n *node, id identity) error {
	var faults []error
	bad := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("%v: "+format, append([]any{n}, args...)...))
	}
	if id.role != "" && id.role != "master" {
		bad("is a %s of another server; a node must be a master of its own", id.role)
	}
	if id.policy != "" && id.policy != "noeviction" && id.maxMemory != "0" {
		bad("maxmemory-policy is %s, under which Redis may evict a held lock: set it to noeviction", id.policy)
	}
	if l.p.guarded && !id.historic {
		bad("INFO has no master_replid, which the restart guard needs: allow +info in its ACL, or turn the guard off knowing what it protects from")
	}
	return errors.Join(faults...)
}

// identify asks a node who it is.
func (n *node) identify(ctx context.Context) (identity, error) {
	cmd := redis.NewStringCmd(ctx, "info")
	if err := n.client.Process(ctx, once{cmd}); err != nil && !answered(err) {
		return identity{}, err
	}
	var id identity
	for line := range strings.Lines(cmd.Val()) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch name {
		case "run_id":
			id.runID = value
		case "role":
			id.role = value
		case "maxmemory":
			id.maxMemory = value
		case "maxmemory_policy":
			id.policy = value
		case "master_replid":
			id.historic = true
		}
	}
	return id, nil
}

// noticed follows what a node answers: it is checked at its first answer if it was away at the start, and
// an operator is told when trouble with it begins and ends. It ends with a vote on an acquisition; other
// scripts are answered by nodes that do not vote, too.
func (e *engine) noticed(n *node, v vote, r *round) {
	n.mu.Lock()
	check := !n.checked && answered(v.err)
	n.checked = n.checked || check
	was, now := n.trouble, troubleOf(v)
	if now == Granted && r.script != acquireScript {
		now = was
	}
	n.trouble = now
	n.mu.Unlock()
	if check {
		e.spawn(func() { r.l.checkLate(n) })
	}
	switch {
	case was == now:
	case now == Granted:
		r.l.p.logger.Info("lockkit: node votes again", "node", n.String())
	default:
		r.l.p.logger.Warn("lockkit: node does not vote", "why", v.report(n).String())
	}
}

// troubleOf is the verdict of a node that cannot vote, Granted for one that can.
func troubleOf(v vote) Verdict {
	switch v.verdict {
	case Failed, Quarantined, ClockSkewed, Replica, Unguarded, Overflow:
		return v.verdict
	}
	return Granted
}

// checkLate checks a node that was away when the Locker was made. An unfit one does not take part.
func (l *Locker) checkLate(n *node) {
	ctx := &nodeContext{context.Background(), time.Now().Add(l.p.nodeTimeout)}
	id, err := n.identify(ctx)
	if err != nil {
		n.mu.Lock()
		n.checked = false
		n.mu.Unlock()
		return
	}
	fault := l.unfit(n, id)
	n.mu.Lock()
	n.runID = id.runID // before looking at the others, which may be doing the same
	n.mu.Unlock()
	for _, other := range l.e.nodes {
		other.mu.Lock()
		same := other != n && id.runID != "" && other.runID == id.runID
		other.mu.Unlock()
		if same {
			fault = errors.Join(fault, fmt.Errorf("%v: %w, it is also %v", n, errSameServer, other))
		}
	}
	n.mu.Lock()
	n.fault = fault
	n.mu.Unlock()
	if fault != nil {
		l.p.logger.Error("lockkit: node is unfit and does not take part", "err", fault)
	}
}
