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
			return a.withFleet(ctx, cmd, a.dialNodes, func(ctx context.Context, f *fleet) error {
				d, err := admin.Diagnose(ctx, f.clients, a.options(cmd)...)
				if err != nil {
					return err
				}
				j := newDoctorJSON(d)
				if asJSON(cmd) {
					err = a.printJSON(&j)
				} else {
					a.printDiagnosis(j)
				}
				if err == nil && !j.Healthy {
					err = errProblemFound
				}
				return err
			})
		},
	}
}

// doctorJSON is the output of doctor.
type doctorJSON struct {
	Healthy  bool             `json:"healthy"`  // no faults and no risks
	Findings []findingJSON    `json:"findings"` // the most severe first
	Nodes    []nodeHealthJSON `json:"nodes"`    // for a Redis Cluster, one entry for each master
}

type findingJSON struct {
	Severity string `json:"severity"` // fault, risk, warning
	Code     string `json:"code"`     // code of the admin.Finding
	Node     int    `json:"node"`     // -1: all nodes, or several, which What names
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

	LongestMaxTTLMS int64 `json:"longest_max_ttl_ms,omitempty"` // the longest max TTL known to the node; after a loss of data it does not vote for this long
	LongestForMS    int64 `json:"longest_for_ms,omitempty"`     // how long the node has known it
}

func newDoctorJSON(d admin.Diagnosis) doctorJSON {
	j := doctorJSON{Healthy: true, Findings: []findingJSON{}}
	isNew := false
	add := func(node int, addr string, findings []admin.Finding) (votes bool) {
		votes = true
		for _, f := range findings {
			j.Findings = append(j.Findings, findingJSON{f.Severity, f.Code, node, addr, f.What, f.Mend})
			j.Healthy = j.Healthy && f.Severity == admin.SeverityWarning
			votes = votes && f.Severity != admin.SeverityFault && f.Code != admin.CodeQuarantined
			isNew = isNew || f.Code == admin.CodeNotProvisioned
		}
		return votes
	}
	add(-1, "", d.Findings)
	for _, n := range d.Nodes {
		h := nodeHealthJSON{Node: n.Node, Addr: n.Addr, Reached: n.Reached, Votes: add(n.Node, n.Addr, n.Findings) && !isNew,
			LongestMaxTTLMS: n.LongestMaxTTL.Milliseconds(), LongestForMS: n.LongestFor.Milliseconds()}
		if n.Err != nil {
			h.Error = oneLine(n.Err)
		}
		j.Nodes = append(j.Nodes, h)
	}
	bySeverity := []string{admin.SeverityFault, admin.SeverityRisk, admin.SeverityWarning}
	slices.SortStableFunc(j.Findings, func(a, b findingJSON) int {
		return slices.Index(bySeverity, a.Severity) - slices.Index(bySeverity, b.Severity)
	})
	return j
}

func formatMS(ms int64) string { return formatDuration(time.Duration(ms) * time.Millisecond) }

func (a *app) printDiagnosis(d doctorJSON) {
	t := table{head: []string{"NODE", "ADDRESS", "REACHED", "VOTES", "LONGEST MAX TTL"}}
	yes := map[bool]string{true: "yes", false: "no"}
	for _, n := range d.Nodes {
		longest := "-"
		if n.LongestMaxTTLMS > 0 {
			longest = fmt.Sprintf("%s, heard of %s ago", formatMS(n.LongestMaxTTLMS), formatMS(n.LongestForMS))
		}
		t.add(strconv.Itoa(n.Node), orDash(n.Addr), yes[n.Reached], yes[n.Votes], longest)
	}
	a.printTable(t)
	a.printf("")
	if len(d.Findings) == 0 {
		a.printf("All is well.")
		return
	}
	for _, f := range d.Findings {
		where := ""
		if f.Node >= 0 {
			where = strings.TrimSuffix(fmt.Sprintf("node %d %s", f.Node, f.Addr), " ") + " "
		}
		a.printf("%-7s %s%s (%s).", strings.ToUpper(f.Severity), where, printable(strings.TrimSuffix(f.What, ".")), f.Code)
		a.printf("        %s.", f.Mend)
	}
	if d.Healthy {
		a.printf("")
		a.printf("Nothing of that is a fault or a risk.")
	}
}
