package core

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"time"
)

// A rule finds one thing that may be wrong with a server. what is empty where nothing is.
type rule struct {
	severity Severity
	code     FindingCode
	find     func(d *diagnosis, n *NodeDiagnosis) (what, mend string)
}

// rules are what servers are held against that are reached and are no Sentinel, replica or the like: see unfit for those.
var rules = []rule{
	{SeverityFault, CodeRights, lacksRights},
	{SeverityWarning, CodeInfoDenied, tellsNothing},
	{SeverityFault, CodeWritesRefused, refusesWrites},
	{SeverityFault, CodeClockOff, clockOff},
	{SeverityWarning, CodeClockDrifting, clockDrifting},
	{SeverityWarning, CodeGuardMissing, guardMissing},
	{SeverityWarning, CodeHistoryChanged, historyChanged},
	{SeverityWarning, CodeQuarantined, quarantined},
	{SeverityRisk, CodeNotDurable, notDurable},
	{SeverityWarning, CodeFsync, notSynced},
	{SeverityNote, CodeRecordsInMemory, recordsInMemory},
	{SeverityRisk, CodeUnguarded, replicasUnguarded},
	{SeverityRisk, CodeReplicaLag, noReplicaLag},
	{SeverityRisk, CodeReplicaLag, shortReplicaLag},
	{SeverityRisk, CodeMinReplicas, servesWithoutReplicas},
	{SeverityWarning, CodeReplicaBehind, replicaBehind},
	{SeverityNote, CodeLastReplica, lastReplica},
	{SeverityWarning, CodeMemory, nearlyFull},
	{SeverityNote, CodeEvicting, wouldEvict},
	{SeverityWarning, CodeSlow, slow},
}

// An allRule is a rule about all nodes together.
type allRule struct {
	severity Severity
	code     FindingCode
	find     func(d *diagnosis) (what, mend string)
}

var allRules = []allRule{
	{SeverityFault, CodeClockOff, ownClockOff},
	{SeverityWarning, CodeNotProvisioned, notProvisioned},
	{SeverityWarning, CodeMaxTTL, longerTTLInUse},
	{SeverityNote, CodeMaxTTL, shorterTTLInUse},
	{SeverityNote, CodeFirstReplica, firstReplica},
	{SeverityWarning, CodeSameHost, sameHost},
	{SeverityNote, CodeSameHost, sameHostForTests},
	{SeverityWarning, CodeEven, evenNumber},
	{SeverityFault, CodeNoQuorum, noQuorum},
}

// judge applies the rules.
func (d *diagnosis) judge() {
	for i := range d.Nodes {
		n := &d.Nodes[i]
		if d.outside(n) {
			continue
		}
		for _, r := range rules {
			if what, mend := r.find(d, n); what != "" {
				d.about(n, r.severity, r.code, what, mend)
			}
		}
	}
	for _, r := range allRules {
		if what, mend := r.find(d); what != "" {
			d.Findings = append(d.Findings, Finding{r.severity, r.code, -1, "", what, mend})
		}
	}
}

func (d *diagnosis) about(n *NodeDiagnosis, severity Severity, code FindingCode, what, mend string) {
	d.Findings = append(d.Findings, Finding{severity, code, n.Node, n.Addr, what, mend})
}

// outside reports whether a server cannot be a node, whatever else is to be said of it.
func (d *diagnosis) outside(n *NodeDiagnosis) bool {
	if n.Err != nil && !n.id.told {
		code, mend := whyUnreached(n)
		d.about(n, SeverityFault, code, "does not answer: "+n.Err.Error(), mend)
		return true
	}
	flaws := n.id.unfit(d.p.guarded, n.asCluster)
	out := false
	for _, f := range flaws {
		d.about(n, SeverityFault, f.code, f.what, f.mend)
		out = out || slices.Contains([]FindingCode{CodeSentinel, CodeCluster, CodeReplica}, f.code)
	}
	if !out && n.Err != nil {
		d.about(n, SeverityFault, CodeUnreachable, "stopped answering while it was examined: "+n.Err.Error(), "look at its load and at the network, and run this again")
		return true
	}
	return out || d.listedTwice(n)
}

// whyUnreached says why nothing is known of a server.
func whyUnreached(n *NodeDiagnosis) (FindingCode, string) {
	mend := mending(n.Err)
	switch {
	case says(n.Err, badLogin...):
		return CodeCredentials, mend
	case badTLS(n.Err):
		return CodeTLS, mend
	case n.Reached && mend != "":
		return CodeRefused, mend
	case n.Reached:
		return CodeRefused, "it may pass by itself (BUSY, LOADING); if it does not, look at the server's log"
	}
	return CodeUnreachable, "start the server, check its address, and what is between (firewall; TLS on one side only)"
}

// listedTwice finds the server among those before it.
func (d *diagnosis) listedTwice(n *NodeDiagnosis) bool {
	for i := range d.Nodes {
		other := &d.Nodes[i]
		if other == n {
			return false
		}
		if n.RunID != "" && other.RunID == n.RunID {
			d.about(n, SeverityFault, CodeSameServer, fmt.Sprintf("is the same server as %s, which would have two votes", nodeName(other.Node, other.Addr)),
				"list each server once, under one address")
			return true
		}
	}
	return false
}

func lacksRights(d *diagnosis, n *NodeDiagnosis) (what, mend string) {
	denied := n.Rights.Essential
	if !n.id.told && !d.p.guarded {
		denied = slices.DeleteFunc(slices.Clone(denied), func(c string) bool { return c == "info" }) // tellsNothing
	}
	named := slices.Clone(denied)
	if n.Rights.Key {
		named = append(named, "the keys "+d.p.prefix+"*")
	}
	if n.Rights.Channel {
		named = append(named, "the channels "+d.p.prefix+"*")
	}
	if len(named) == 0 {
		return "", ""
	}
	return fmt.Sprintf("denies its user %s what nothing works without: %s", n.user(), strings.Join(named, ", ")), d.grant(n, denied)
}

// user names the client's user.
func (n *NodeDiagnosis) user() string {
	if n.Rights.User == "" {
		return "default"
	}
	return n.Rights.User
}

// grant is the line that mends rights.
func (d *diagnosis) grant(n *NodeDiagnosis, denied []string) string {
	rules := []string{"ACL SETUSER", n.user()}
	all := slices.Clone(denied)
	slices.Sort(all)
	for _, c := range slices.Compact(all) {
		rules = append(rules, "+"+c)
	}
	if n.Rights.Key {
		rules = append(rules, "~"+d.p.prefix+"*")
	}
	if n.Rights.Channel {
		rules = append(rules, "&"+d.p.prefix+"*")
	}
	return strings.Join(rules, " ")
}

func tellsNothing(d *diagnosis, n *NodeDiagnosis) (what, mend string) {
	if n.id.told || d.p.guarded { // with the guard, INFO is essential
		return "", ""
	}
	return "denies INFO: eviction, role, version, and servers that are listed twice go unnoticed", d.grant(n, []string{"info"})
}

func refusesWrites(_ *diagnosis, n *NodeDiagnosis) (what, mend string) {
	if n.refusal == nil {
		return "", ""
	}
	mend = mending(n.refusal)
	switch {
	case says(n.refusal, "OOM"):
		mend = "raise maxmemory, or find out who fills it: lockkit's own keys go by themselves, do not delete them"
	case says(n.refusal, "NOREPLICAS"):
		mend = "bring its replicas back: min-replicas-to-write keeps it from serving without them"
	case says(n.refusal, "MISCONF"):
		mend = "it cannot save to its disk: look at the disk, and at the server's log"
	case mend == "":
		mend = "look at the server's log"
	}
	return "takes no writes: " + n.refusal.Error(), mend
}

// off is by how much a clock is off for certain.
func (n *NodeDiagnosis) off() time.Duration { return max(0, n.Clock.Offset.Abs()-n.Clock.Within) }

func clockOff(d *diagnosis, n *NodeDiagnosis) (what, mend string) {
	if d.p.window == 0 || n.off() <= d.p.window || d.ownClock() {
		return "", ""
	}
	return fmt.Sprintf("its clock is off by %v, more than the clock window of %v: it does not vote", n.Clock.Offset.Round(time.Millisecond), d.p.window),
		"mend NTP on its machine, and do not widen the window"
}

func clockDrifting(d *diagnosis, n *NodeDiagnosis) (what, mend string) {
	if d.p.window == 0 || n.off() <= d.p.window/2 || n.off() > d.p.window || d.ownClock() {
		return "", ""
	}
	return fmt.Sprintf("its clock is off by %v, more than half of the clock window of %v, beyond which it does not vote", n.Clock.Offset.Round(time.Millisecond), d.p.window),
		"mend NTP on its machine, and do not widen the window"
}

// ownClock reports whether most clocks are off, and to the same side: then it is this machine's.
func (d *diagnosis) ownClock() bool {
	known, ahead, behind := 0, 0, 0
	for i := range d.Nodes {
		n := &d.Nodes[i]
		if n.Clock.Known {
			known++
		}
		switch {
		case n.off() <= d.p.window/2:
		case n.Clock.Offset > 0:
			ahead++
		default:
			behind++
		}
	}
	return known > 2 && 2*max(ahead, behind) > known
}

func ownClockOff(d *diagnosis) (what, mend string) {
	if d.p.window == 0 || !d.ownClock() {
		return "", ""
	}
	var offsets []time.Duration
	for _, n := range d.Nodes {
		if n.Clock.Known {
			offsets = append(offsets, n.Clock.Offset)
		}
	}
	slices.Sort(offsets)
	return fmt.Sprintf("the clock of this machine differs from those of most nodes, by %v; the clock window is %v, and beyond it they do not vote for it",
		offsets[len(offsets)/2].Round(time.Millisecond), d.p.window), "mend NTP on this machine"
}

func nearlyFull(_ *diagnosis, n *NodeDiagnosis) (what, mend string) {
	if n.Memory.Max <= 0 || n.Memory.Used < 0 || n.Memory.Used*10 <= n.Memory.Max*9 || n.refusal != nil {
		return "", ""
	}
	return fmt.Sprintf("has used %d of %d MB of maxmemory: when it is full, it grants nothing any more", n.Memory.Used>>20, n.Memory.Max>>20),
		"raise maxmemory, or find out who fills it: lockkit's own keys go by themselves, do not delete them"
}

func wouldEvict(_ *diagnosis, n *NodeDiagnosis) (what, mend string) {
	if n.Memory.Policy == "" || n.Memory.Policy == "noeviction" || n.Memory.Max != 0 {
		return "", ""
	}
	return fmt.Sprintf("has no maxmemory, but with one it would evict held locks, as maxmemory-policy is %s", n.Memory.Policy), "set it to noeviction"
}

func slow(d *diagnosis, n *NodeDiagnosis) (what, mend string) {
	if n.Cost.P50 <= d.p.nodeTimeout/2 {
		return "", ""
	}
	return fmt.Sprintf("takes %v for a request that costs nothing, more than half of the node timeout of %v", n.Cost.P50.Round(time.Millisecond), d.p.nodeTimeout),
		"look for slow commands (SLOWLOG GET) and at the network, or use a longer TTL"
}

// sharing are the hosts of several nodes, with those nodes.
func (d *diagnosis) sharing(loopback bool) (what string) {
	nodes := map[string][]string{}
	var hosts []string
	for _, n := range d.Nodes {
		host, _, err := net.SplitHostPort(n.Addr)
		ip := net.ParseIP(host)
		if own := host == "localhost" || ip != nil && ip.IsLoopback(); err != nil || own != loopback {
			continue
		}
		if name := fmt.Sprint(n.Node); !slices.Contains(nodes[host], name) {
			nodes[host] = append(nodes[host], name)
		}
		if len(nodes[host]) == 2 && !slices.Contains(hosts, host) {
			hosts = append(hosts, host)
		}
	}
	for i, host := range hosts {
		if i > 0 {
			what += ", and "
		}
		what += fmt.Sprintf("nodes %s are on one host, %s", strings.Join(nodes[host], ", "), host)
	}
	return what
}

func sameHost(d *diagnosis) (what, mend string) {
	return d.sharing(false), "put each on a machine of its own, or the loss of one costs several votes"
}

func sameHostForTests(d *diagnosis) (what, mend string) {
	return d.sharing(true), "fine for development; in production put each on a machine of its own"
}

func evenNumber(d *diagnosis) (what, mend string) {
	if d.count%2 != 0 {
		return "", ""
	}
	return fmt.Sprintf("%d nodes survive no more failures than %d do, and there is one more that can fail", d.count, d.count-1), "use 1, 3 or 5; while nodes are added or removed, nothing"
}

// noQuorum counts the nodes that would vote. What is wrong with a single node says it all.
func noQuorum(d *diagnosis) (what, mend string) {
	out := map[int]bool{}
	for _, f := range d.Findings {
		if f.Severity == SeverityFault {
			out[f.Node] = true
		}
		if f.Code == CodeNotProvisioned {
			return "", ""
		}
	}
	for _, n := range d.Nodes {
		if n.Guard.State != GuardOff && n.Guard.State != GuardVoting {
			out[n.Node] = true
		}
	}
	delete(out, -1)
	if votes := d.count - len(out); d.count > 1 && votes < quorum(d.count) {
		return fmt.Sprintf("%d of %d nodes would vote, too few to grant a key", votes, d.count), "mend what is said of each of the others"
	}
	return "", ""
}
