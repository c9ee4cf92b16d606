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
		Name:  "doctor",
		Usage: "what is wrong with the nodes, and how to fix it",
		Description: "Asks each node what it is, what its clock says, whether it votes and takes writes, " +
			"and what this user may do.\n" +
			"It changes nothing. Run it with the user and password of the services, to see what they may do. " +
			"Give --max-ttl, --clock-window,\n" +
			"--guard and --replica-lag where the services set them. " +
			"Exit status 1: there are faults or risks; warnings leave it 0.",
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if cmd.Args().Present() {
				return usagef("doctor takes no arguments: it looks at all nodes")
			}

			return a.withFleet(ctx, cmd, a.dialNodes, func(ctx context.Context, f *fleet) error {
				return a.diagnose(ctx, cmd, f)
			})
		},
	}
}

func (a *app) diagnose(ctx context.Context, cmd *cli.Command, f *fleet) error {
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

	// The longest max TTL known to the node, and how long the node has known it. After a loss of its data, the node
	// does not vote for this long.
	LongestMaxTTLMS int64 `json:"longest_max_ttl_ms,omitempty"`
	LongestForMS    int64 `json:"longest_for_ms,omitempty"`
}

func newDoctorJSON(d admin.Diagnosis) doctorJSON {
	j := doctorJSON{Healthy: true, Findings: []findingJSON{}}
	j.addFindings(-1, "", d.Findings)

	// Nodes that are not provisioned do not vote yet. The finding is about all nodes.
	notProvisioned := slices.ContainsFunc(d.Findings, func(f admin.Finding) bool {
		return f.Code == admin.CodeNotProvisioned
	})

	for _, n := range d.Nodes {
		j.addFindings(n.Node, n.Addr, n.Findings)
		h := nodeHealthJSON{
			Node:            n.Node,
			Addr:            n.Addr,
			Reached:         n.Reached,
			Votes:           !notProvisioned && !slices.ContainsFunc(n.Findings, preventsVote),
			LongestMaxTTLMS: n.LongestMaxTTL.Milliseconds(),
			LongestForMS:    n.LongestFor.Milliseconds(),
		}
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

// addFindings adds the findings about a node. If one of them is worse than a warning, the nodes are not healthy.
func (j *doctorJSON) addFindings(node int, addr string, findings []admin.Finding) {
	for _, f := range findings {
		j.Findings = append(j.Findings, findingJSON{
			Severity: f.Severity,
			Code:     f.Code,
			Node:     node,
			Addr:     addr,
			What:     f.What,
			Mend:     f.Fix,
		})

		if f.Severity != admin.SeverityWarning {
			j.Healthy = false
		}
	}
}

// preventsVote reports whether a node with this finding does not vote.
func preventsVote(f admin.Finding) bool {
	return f.Severity == admin.SeverityFault || f.Code == admin.CodeQuarantined
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
		a.printFinding(f)
	}

	// Without this line, an operator may take a warning for the cause of a problem.
	if d.Healthy {
		a.printf("")
		a.printf("Nothing of that is a fault or a risk.")
	}
}

func (a *app) printFinding(f findingJSON) {
	where := ""
	if f.Node >= 0 {
		where = strings.TrimSuffix(fmt.Sprintf("node %d %s", f.Node, f.Addr), " ") + " "
	}
	what := printable(strings.TrimSuffix(f.What, "."))
	a.printf("%-7s %s%s (%s).", strings.ToUpper(f.Severity), where, what, f.Code)
	a.printf("        %s.", f.Mend)
}
