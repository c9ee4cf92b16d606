package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockkit/lockkit/core/admin"
	"github.com/urfave/cli/v3"
)

func (a *app) doctor() *cli.Command {
	return &cli.Command{
		Name: "doctor", Usage: "what is wrong with the nodes, and how to fix it",
		Description: "Asks each node what it is, what its clock says, whether it votes and takes writes, and what this user may do.\n" +
			"It changes nothing. Run it with the user and password of the services, to see what they may do. Give --max-ttl, --clock-window,\n" +
			"--guard and --replica-lag where the services set them. Exit status 1: there are faults or risks; warnings leave it 0.",
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if cmd.Args().Present() {
				return usagef("doctor takes no arguments: it looks at all nodes")
			}
			return a.with(ctx, cmd, a.clients, func(ctx context.Context, f *fleet) error {
				d, err := admin.Diagnose(ctx, f.clients, a.options(cmd)...)
				if err != nil {
					return err
				}
				j := newDoctorJSON(d)
				if asJSON(cmd) {
					err = a.json(&j)
				} else {
					a.printDiagnosis(j)
				}
				if err == nil && !j.Healthy {
					err = errFound
				}
				return err
			})
		},
	}
}

// doctorJSON is what doctor prints.
type doctorJSON struct {
	Healthy  bool             `json:"healthy"`  // no fault, no risk
	Findings []findingJSON    `json:"findings"` // the gravest first
	Nodes    []nodeHealthJSON `json:"nodes"`    // of a Redis Cluster, one for each master
}

type findingJSON struct {
	Severity string `json:"severity"` // fault, risk, warning
	Code     string `json:"code"`     // kinds of admin.Finding
	Node     int    `json:"node"`     // -1 = all, or several that what names
	Addr     string `json:"addr,omitempty"`
	What     string `json:"what"`
	Mend     string `json:"mend"`
}

type nodeHealthJSON struct {
	Node    int    `json:"node"`
	Addr    string `json:"addr,omitempty"`
	Reached bool   `json:"reached"`
	Votes   bool   `json:"votes"`
	Error   string `json:"error,omitempty"`

	LongestMaxTTLMS int64 `json:"longest_max_ttl_ms,omitempty"` // that the node has heard of; if it loses its memory, it does not vote for so long
	LongestForMS    int64 `json:"longest_for_ms,omitempty"`     // how long ago it heard of it
}

func newDoctorJSON(d admin.Diagnosis) doctorJSON {
	j := doctorJSON{Healthy: true, Findings: []findingJSON{}}
	fresh := false
	add := func(node int, addr string, findings []admin.Finding) (votes bool) {
		votes = true
		for _, f := range findings {
			j.Findings = append(j.Findings, findingJSON{f.Severity, f.Code, node, addr, f.What, f.Mend})
			j.Healthy = j.Healthy && f.Severity == admin.SeverityWarning
			votes = votes && f.Severity != admin.SeverityFault && f.Code != admin.CodeQuarantined
			fresh = fresh || f.Code == admin.CodeNotProvisioned
		}
		return votes
	}
	add(-1, "", d.Findings)
	for _, n := range d.Nodes {
		h := nodeHealthJSON{Node: n.Node, Addr: n.Addr, Reached: n.Reached, Votes: add(n.Node, n.Addr, n.Findings) && !fresh,
			LongestMaxTTLMS: n.LongestMaxTTL.Milliseconds(), LongestForMS: n.LongestFor.Milliseconds()}
		if n.Err != nil {
			h.Error = oneLine(n.Err)
		}
		j.Nodes = append(j.Nodes, h)
	}
	grave := []string{admin.SeverityFault, admin.SeverityRisk, admin.SeverityWarning}
	slices.SortStableFunc(j.Findings, func(a, b findingJSON) int {
		return slices.Index(grave, a.Severity) - slices.Index(grave, b.Severity)
	})
	return j
}

func briefMS(ms int64) string { return brief(time.Duration(ms) * time.Millisecond) }

func (a *app) printDiagnosis(d doctorJSON) {
	t := table{head: []string{"NODE", "ADDRESS", "REACHED", "VOTES", "LONGEST MAX TTL"}}
	yes := map[bool]string{true: "yes", false: "no"}
	for _, n := range d.Nodes {
		longest := "-"
		if n.LongestMaxTTLMS > 0 {
			longest = fmt.Sprintf("%s, heard of %s ago", briefMS(n.LongestMaxTTLMS), briefMS(n.LongestForMS))
		}
		t.add(strconv.Itoa(n.Node), optional(n.Addr), yes[n.Reached], yes[n.Votes], longest)
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
			where = strings.TrimSuffix(fmt.Sprintf("node %d %s", f.Node, f.Addr), " ") + " "
		}
		a.say("%-7s %s%s (%s).", strings.ToUpper(f.Severity), where, tidy(strings.TrimSuffix(f.What, ".")), f.Code)
		a.say("        %s.", f.Mend)
	}
	if d.Healthy {
		a.say("")
		a.say("Nothing of that is a fault or a risk.")
	}
}
