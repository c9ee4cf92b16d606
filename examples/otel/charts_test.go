package main

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Drawings of panels, from the example and from failures, for the charts of the manual: "make charts".

// charted has the panels of each job that are drawn, by the name of the chart.
var charted = map[string]map[string]string{
	"example": {
		"wait": "Wait, p95", "ends": "Ends of locks", "lost": "Lost", "ticks": "Ticks run", "tasks": "Given back",
	},
	"stuck on a busy route": {"oldest-hold": "Oldest hold"},
	"held by a stranger":    {"waiting": "Waiting"},
	"quiet blip":            {"nodes-voting": "Nodes voting"},
	"quiet death":           {"nodes-to-spare": "Nodes to spare"},
	"overloaded":            {"busy": "Busy"},
}

// A drawing is the results of a panel's queries, in the form that bench/panels reads.
type drawing struct {
	Title, Unit string
	Lines       []drawnLine
}

type drawnLine struct {
	Legend string
	Points [][2]float64 // seconds since the start, value
}

// Each chart exists, and the manual shows it.
func TestChartsAreInTheManual(t *testing.T) {
	manual, charts := read(t, "../../docs/operations.md"), 0
	for _, names := range charted {
		for name := range names {
			charts++
			if !strings.Contains(manual, "](img/"+name+".svg)") {
				t.Errorf("docs/operations.md does not show %s", name)
			}
			if !strings.HasPrefix(read(t, "../../docs/img/"+name+".svg"), "<?xml") {
				t.Errorf("docs/img/%s.svg is no chart: make charts", name)
			}
		}
	}
	if files, err := filepath.Glob("../../docs/img/*.svg"); len(files) != charts || err != nil {
		t.Errorf("%d charts, but %q in docs/img (%v)", charts, files, err)
	}
}

// draw writes the data of a job's panels since the start, if LOCKKIT_CHARTS names a directory.
func (p *database) draw(t *testing.T, job string) {
	t.Helper()
	dir := os.Getenv("LOCKKIT_CHARTS")
	if dir == "" {
		return
	}
	for name, title := range charted[job] {
		d := p.drawing(t, job, title)
		if len(d.Lines) == 0 {
			t.Errorf("%s: %q shows nothing", job, title)
		}
		text, err := json.Marshal(d)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name+".json"), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// A charter has those fields of a dashboard's panel that matter here.
type charter struct {
	Title       string
	FieldConfig struct{ Defaults struct{ Unit string } }
	Targets     []struct{ Expr, LegendFormat string }
}

// panelOf returns the panel with the title that is a chart, and not a number.
func panelOf(t *testing.T, title string) charter {
	t.Helper()
	var dashboard struct{ Panels []charter }
	if err := json.Unmarshal([]byte(read(t, "../../otel/dashboards/lockkit.json")), &dashboard); err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(dashboard.Panels, func(p charter) bool {
		return p.Title == title && len(p.Targets) > 0 && p.Targets[0].LegendFormat != ""
	})
	if i < 0 {
		t.Fatalf("no panel %q", title)
	}
	return dashboard.Panels[i]
}

func (p *database) drawing(t *testing.T, job, title string) drawing {
	t.Helper()
	panel := panelOf(t, title)
	drawn := drawing{Title: title + " (" + job + ")", Unit: map[string]string{"s": "s", "ops": "per second"}[panel.FieldConfig.Defaults.Unit]}
	for _, q := range panel.Targets {
		found, err := p.query(strings.NewReplacer("$__rate_interval", "10s", "$__range", "60s", "$job", job, "$name", ".*").Replace(q.Expr), p.since)
		if err != nil {
			t.Fatal(err)
		}
		for _, series := range found {
			if line := p.lineOf(series, q.LegendFormat); len(line.Points) > 0 {
				drawn.Lines = append(drawn.Lines, line)
			}
		}
	}
	return drawn
}

var inLegend = regexp.MustCompile(`{{(\w+)}}`)

// lineOf returns a series with its legend.
func (p *database) lineOf(series result, legend string) (line drawnLine) {
	line.Legend = strings.TrimSpace(inLegend.ReplaceAllStringFunc(legend, func(label string) string {
		return series.Metric[strings.Trim(label, "{}")]
	}))
	for _, v := range series.Values {
		at, _ := v[0].(float64)
		text, _ := v[1].(string)
		if n, err := strconv.ParseFloat(text, 64); err == nil && !math.IsNaN(n) && !math.IsInf(n, 0) {
			line.Points = append(line.Points, [2]float64{at - float64(p.since.Unix()), n})
		}
	}
	return line
}
