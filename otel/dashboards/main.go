// Command dashboards writes lockkit.json, the Grafana dashboard of package otellock, from the table in panels.go. To
// use the dashboard, import the file; the command need not be run.
package main

//go:generate go run .

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
)

func main() {
	err := os.WriteFile("lockkit.json", render(), 0o644)
	if err != nil {
		fmt.Fprintln(os.Stderr, "dashboards:", err)
		os.Exit(1)
	}
}

func render() []byte {
	text, err := json.MarshalIndent(newDashboard(), "", "  ")
	if err != nil {
		panic(err) // cannot happen: a dashboard has only strings, numbers, booleans, lists and maps of them
	}
	return append(text, '\n')
}

var prometheus = datasource{Type: "prometheus", UID: "${datasource}"}

func newDashboard() dashboard {
	d := dashboard{
		UID:         "lockkit",
		Title:       "lockkit",
		Tags:        []string{"lockkit", "locks"},
		Description: "Who waits for locks, who holds them, what was lost. Panels are explained in docs/operations.md.",

		SchemaVersion: 39,
		Version:       1,
		Editable:      true,
		GraphTooltip:  1,
		Refresh:       "30s",
		Time:          timeRange{From: "now-1h", To: "now"},
		Timezone:      "browser",

		Templating:  templating{variables()},
		Annotations: annotation{[]any{}},
	}

	y := 0
	for _, s := range sections {
		y = d.addSection(s, y)
	}
	return d
}

// gridWidth is the width of a dashboard in units of its grid.
const gridWidth = 24

// addSection adds a row with its panels at height y, and returns the height of the next row.
func (d *dashboard) addSection(s section, y int) int {
	d.addPanel(panel{
		Type:      "row",
		Title:     s.title,
		GridPos:   gridPos{H: 1, W: gridWidth, Y: y},
		Collapsed: new(bool),
		Panels:    new([]panel{}),
	})
	y++

	size := 8 // width and height of a panel
	if s.charts[0].kind == "stat" {
		size = 4
	}
	perLine := gridWidth / size

	for i, c := range s.charts {
		p := c.toPanel()
		p.GridPos = gridPos{H: size, W: size, X: i % perLine * size, Y: y + i/perLine*size}
		d.addPanel(p)
	}

	lines := (len(s.charts) + perLine - 1) / perLine
	return y + lines*size
}

// addPanel adds a panel with the next id.
func (d *dashboard) addPanel(p panel) {
	p.ID = len(d.Panels) + 1
	d.Panels = append(d.Panels, p)
}

// variables returns the variables that a reader of the dashboard can set.
func variables() []variable {
	jobs := `label_values(lockkit_acquire_duration_seconds_count, job)`
	names := `label_values(lockkit_acquire_duration_seconds_count{job=~"$job"}, lockkit_name)`

	return []variable{
		{
			Name:    "datasource",
			Label:   "Data source",
			Type:    "datasource",
			Query:   "prometheus",
			Current: map[string]any{},
		},
		newVariable("job", "Job", jobs),
		newVariable("name", "Name", names),
	}
}

// newVariable returns a variable that offers the results of a query, with all of them selected.
func newVariable(name, label, query string) variable {
	return variable{
		Name:       name,
		Label:      label,
		Type:       "query",
		Query:      query,
		Definition: query,
		Datasource: &prometheus,
		Refresh:    2,

		IncludeAll: true,
		AllValue:   ".*",
		Multi:      true,
		Sort:       1,
		Current:    map[string]any{"text": "All", "value": "$__all"},
	}
}

// toPanel returns the chart in the model of Grafana. Its position and id are not set.
func (c chart) toPanel() panel {
	defaults := fieldDefaults{Unit: c.unit}
	if c.kind == "stat" {
		defaults.NoValue = "0"
		defaults.Thresholds = c.newThresholds()
	}

	if c.isTimeSeries() {
		defaults.Custom = map[string]any{"fillOpacity": 10, "lineWidth": 1, "showPoints": "never"}
	}

	p := panel{
		Type:        cmp.Or(c.kind, "timeseries"),
		Title:       c.title,
		Description: c.description,
		Datasource:  &prometheus,
		FieldConfig: &fieldConfig{Defaults: defaults, Overrides: []any{}},
		Options:     c.options(),
	}

	for i, q := range c.queries {
		p.Targets = append(p.Targets, c.target(i, q))
	}
	return p
}

func (c chart) isTimeSeries() bool { return c.kind == "" }

// options returns Grafana's options for the kind of chart.
func (c chart) options() map[string]any {
	switch c.kind {
	case "stat":
		return map[string]any{
			"colorMode":     "value",
			"graphMode":     "area",
			"reduceOptions": map[string]any{"calcs": []string{"lastNotNull"}},
		}
	case "heatmap":
		return map[string]any{
			// The series are buckets already.
			"calculate": false,
			"yAxis":     map[string]any{"unit": c.unit},
			"color":     map[string]any{"mode": "scheme", "scheme": "Oranges"},
			"exemplars": map[string]any{"color": "rgba(31,96,196,1)"},
			"tooltip":   map[string]any{"mode": "single"},
		}
	default:
		return map[string]any{
			"legend": map[string]any{
				"displayMode": "table",
				"placement":   "bottom",
				"calcs":       []string{"lastNotNull", "max"},
			},
			"tooltip": map[string]any{"mode": "multi", "sort": "desc"},
		}
	}
}

// target returns the i-th query of the chart in the model of Grafana.
func (c chart) target(i int, q query) target {
	t := target{
		RefID:        string(rune('A' + i)),
		Datasource:   prometheus,
		Expr:         q.expr,
		LegendFormat: q.legend,
		Range:        true,
		EditorMode:   "code",
	}

	// Prometheus's buckets are cumulative. This format makes Grafana subtract them.
	if c.kind == "heatmap" {
		t.Format = "heatmap"
	}

	// Exemplars belong to durations.
	t.Exemplar = c.kind == "heatmap" || c.isTimeSeries() && c.unit == "s"
	return t
}

// newThresholds returns the values at which the color of a stat changes.
func (c chart) newThresholds() *thresholds {
	at := func(v float64) *float64 { return &v }
	steps := []step{{"blue", nil}}

	switch c.redWhen {
	case "above 0":
		steps = []step{{"green", nil}, {"red", at(0.000001)}}
	case "below 1":
		steps = []step{{"red", nil}, {"green", at(1)}}
	}

	return &thresholds{Mode: "absolute", Steps: steps}
}
