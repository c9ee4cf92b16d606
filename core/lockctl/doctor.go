package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/lockkit/lockkit/core"
)

func (a *app) doctor() *cli.Command {
	return &cli.Command{
		Name: "doctor", Usage: "what is wrong with the nodes, and how to mend it",
		Description: "Asks each node what it is, how it is set, what its clock says, whether it votes, what this user may do and how fast it is.\n" +
			"It changes nothing. Run it with the user and password of the services, to see what they may do. Give --max-ttl, --clock-window,\n" +
			"--guard and --replica-lag where the services set them. Exit status 1: there are faults or risks; warnings and notes leave it 0.",
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if cmd.Args().Present() {
				return usagef("doctor takes no arguments: it looks at all nodes")
			}
			return a.with(ctx, cmd, a.clients, func(ctx context.Context, f *fleet) error {
				d, err := core.Diagnose(ctx, f.clients, a.options(cmd)...)
				if err != nil {
					return err
				}
				if asJSON(cmd) {
					err = a.json(newDoctorJSON(d))
				} else {
					a.printDiagnosis(d)
				}
				if err == nil && !healthy(d) {
					err = errFound
				}
				return err
			})
		},
	}
}

// healthy reports whether there is neither a fault nor a risk.
func healthy(d core.Diagnosis) bool {
	for _, f := range d.Findings {
		if f.Severity == core.SeverityFault || f.Severity == core.SeverityRisk {
			return false
		}
	}
	return true
}

// doctorJSON is what doctor prints.
type doctorJSON struct {
	Healthy       bool             `json:"healthy"` // no fault, no risk
	Findings      []findingJSON    `json:"findings"`
	Nodes         []nodeHealthJSON `json:"nodes"` // of a Redis Cluster, one for each master
	ClockSpreadMS int64            `json:"clock_spread_ms"`
}

type findingJSON struct {
	Severity string `json:"severity"` // fault, risk, warning, note
	Code     string `json:"code"`     // core.FindingCode
	Node     int    `json:"node"`     // -1 = all, or several that what names
	Addr     string `json:"addr,omitempty"`
	What     string `json:"what"`
	Mend     string `json:"mend"`
}

// nodeHealthJSON is what is known of a server. What is not known is missing.
type nodeHealthJSON struct {
	Node       int      `json:"node"`
	Addr       string   `json:"addr,omitempty"`
	Reached    bool     `json:"reached"`
	Error      string   `json:"error,omitempty"`
	Version    string   `json:"version,omitempty"`
	Mode       string   `json:"mode,omitempty"`
	Role       string   `json:"role,omitempty"`
	UptimeMS   int64    `json:"uptime_ms,omitempty"`
	OffsetMS   *float64 `json:"clock_offset_ms,omitempty"` // clock of the node minus that of this machine
	WithinMS   *float64 `json:"clock_within_ms,omitempty"` // how exact that is
	Guard      string   `json:"guard,omitempty"`           // off, voting, quarantined, changed, missing
	LeftMS     int64    `json:"quarantine_left_ms,omitempty"`
	LongestMS  int64    `json:"longest_ttl_ms,omitempty"` // that the node was told of
	UsedBytes  int64    `json:"memory_used,omitempty"`
	MaxBytes   *int64   `json:"memory_max,omitempty"` // 0 = no limit
	Policy     string   `json:"maxmemory_policy,omitempty"`
	AOF        string   `json:"appendonly,omitempty"`
	Fsync      string   `json:"appendfsync,omitempty"`
	Save       string   `json:"save,omitempty"`
	Replicas   *int     `json:"replicas,omitempty"`
	BehindMS   *int64   `json:"replica_behind_ms,omitempty"`
	User       string   `json:"user,omitempty"`
	Denied     []string `json:"denied,omitempty"` // commands that nothing works without, then those that waiting is slow without
	P50US      int64    `json:"p50_us,omitempty"`
	P99US      int64    `json:"p99_us,omitempty"`
	ScriptCost int64    `json:"script_us,omitempty"` // that the server works on one
}

func newDoctorJSON(d core.Diagnosis) doctorJSON {
	j := doctorJSON{Healthy: healthy(d), Findings: []findingJSON{}, ClockSpreadMS: d.ClockSpread.Milliseconds()}
	for _, f := range d.Findings {
		j.Findings = append(j.Findings, findingJSON{string(f.Severity), string(f.Code), f.Node, f.Addr, f.What, f.Mend})
	}
	for _, n := range d.Nodes {
		j.Nodes = append(j.Nodes, newNodeHealthJSON(n))
	}
	return j
}

func newNodeHealthJSON(n core.NodeDiagnosis) nodeHealthJSON {
	j := nodeHealthJSON{Node: n.Node, Addr: n.Addr, Reached: n.Reached, Version: n.Version, Mode: n.Mode, Role: n.Role, UptimeMS: max(0, n.Uptime.Milliseconds()),
		Guard: string(n.Guard.State), LeftMS: max(0, n.Guard.Left.Milliseconds()), LongestMS: max(0, n.Guard.Longest.Milliseconds()),
		UsedBytes: max(0, n.Memory.Used), MaxBytes: known(n.Memory.Max), Policy: n.Memory.Policy,
		AOF: n.Persistence.AOF, Fsync: n.Persistence.Fsync, Save: n.Persistence.Save,
		Replicas: known(n.Replication.Replicas), User: n.Rights.User, Denied: n.Rights.Essential,
		P50US: max(0, n.Cost.P50.Microseconds()), P99US: max(0, n.Cost.P99.Microseconds()), ScriptCost: max(0, n.Cost.Script.Microseconds())}
	if n.Err != nil {
		j.Error = oneLine(n.Err)
	}
	if n.Clock.Known {
		offset, within := n.Clock.Offset.Seconds()*1000, n.Clock.Within.Seconds()*1000
		j.OffsetMS, j.WithinMS = &offset, &within
	}
	if n.Replication.Replicas > 0 && n.Replication.Behind >= 0 {
		j.BehindMS = known(n.Replication.Behind.Milliseconds())
	}
	return j
}

// known is a pointer to a number that is not -1.
func known[N int | int64](n N) *N {
	if n < 0 {
		return nil
	}
	return &n
}

func (a *app) printDiagnosis(d core.Diagnosis) {
	t := table{head: []string{"NODE", "ADDRESS", "VERSION", "ROLE", "VOTES", "CLOCK", "MEMORY", "KEEPS", "P50", "P99", "SCRIPT"}}
	for _, n := range d.Nodes {
		t.add(strconv.Itoa(n.Node), optional(n.Addr), optional(n.Version), optional(n.Role), votes(d, n), offset(n.Clock), memory(n.Memory), keeps(n.Persistence),
			measured(n.Cost.P50), measured(n.Cost.P99), measured(n.Cost.Script))
	}
	a.table(t)
	a.say("")
	if len(d.Findings) == 0 {
		a.say("All is well.")
		return
	}
	for _, f := range d.Findings {
		where := ""
		if f.Node >= 0 {
			where = fmt.Sprintf("node %d %s ", f.Node, f.Addr)
			if f.Addr == "" {
				where = fmt.Sprintf("node %d ", f.Node)
			}
		}
		a.say("%-7s %s%s.", strings.ToUpper(string(f.Severity)), where, tidy(strings.TrimSuffix(f.What, ".")))
		a.say("        %s.", f.Mend)
	}
	if healthy(d) {
		a.say("")
		a.say("Nothing of that is a fault or a risk.")
	}
}

// votes says whether services have the vote of a node. A fault keeps it from them, whatever its guard says.
func votes(d core.Diagnosis, n core.NodeDiagnosis) string {
	faulty := slices.ContainsFunc(d.Findings, func(f core.Finding) bool { return f.Node == n.Node && f.Severity == core.SeverityFault })
	switch state := n.Guard.State; {
	case state == core.GuardUnknown:
		return "?"
	case state != core.GuardOff && state != core.GuardVoting:
		return fmt.Sprintf("in %s (%s)", brief(n.Guard.Left), state)
	case faulty:
		return "no"
	default:
		return "yes"
	}
}

func offset(c core.ClockFacts) string {
	if !c.Known {
		return "?"
	}
	if max(c.Offset, -c.Offset) <= c.Within {
		return "±" + brief(c.Within)
	}
	return fmt.Sprintf("%+.1fms", c.Offset.Seconds()*1000)
}

func memory(m core.MemoryFacts) string {
	switch {
	case m.Used < 0:
		return "?"
	case m.Max > 0:
		return size(m.Used) + " of " + size(m.Max)
	}
	return size(m.Used)
}

func keeps(p core.PersistenceFacts) string {
	switch {
	case p.AOF == "":
		return "?"
	case p.AOF == "yes":
		return "aof " + p.Fsync
	case p.Save != "" && p.Save != "no":
		return "snapshots"
	}
	return "nothing"
}

func measured(d time.Duration) string {
	if d < 0 {
		return "?"
	}
	return brief(d)
}
