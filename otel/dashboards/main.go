// Command dashboards writes lockkit.json, the Grafana dashboard of package otellock, from the table in panels.go. To
// use the dashboard, import the file; the command need not be run.
package main

//go:generate go run .

import (
	"encoding/json"
	"fmt"
	"os"
)

func main() {
	if err := os.WriteFile("lockkit.json", render(), 0o644); err != nil {
		fmt.Fprintln(os.Stderr, "dashboards:", err)
		os.Exit(1)
	}
}

func render() []byte {
	text, err := json.MarshalIndent(newDashboard(), "", "  ")
	if err != nil {
		panic(err) // cannot happen: a dashboard has only strings, numbers and lists of them
	}
	return append(text, '\n')
}

var prometheus = datasource{Type: "prometheus", UID: "${datasource}"}

func newDashboard() dashboard {
	d := dashboard{
		UID: "lockkit", Title: "lockkit", Tags: []string{"lockkit", "locks"},
		Description:   "Who waits for locks, who holds them, what was lost. Panels are explained in docs/operations.md.",
		SchemaVersion: 39, Version: 1, Editable: true, GraphTooltip: 1, Refresh: "30s",
		Time: timeRange{"now-1h", "now"}, Timezone: "browser",
		Templating:  templating{variables()},
		Annotations: annotation{[]any{}},
	}
	y := 0
	addPanel := func(p panel) {
		p.ID = len(d.Panels) + 1
		d.Panels = append(d.Panels, p)
	}
	for _, sec := range sections {
		addPanel(panel{Type: "row", Title: sec.title, GridPos: gridPos{H: 1, W: 24, Y: y}, Collapsed: new(bool), Panels: new([]panel{})})
		y++
		width, height := 8, 8
		if sec.charts[0].kind == "stat" {
			width, height = 4, 4
		}
		for i, chart := range sec.charts {
			p := chart.toPanel()
			p.GridPos = gridPos{H: height, W: width, X: i * width % 24, Y: y + i*width/24*height}
			addPanel(p)
		}
		y += (len(sec.charts)*width + 23) / 24 * height
	}
	return d
}

func variables() []variable {
	newVariable := func(name, label, query string) variable {
		return variable{Name: name, Label: label, Type: "query", Query: query, Definition: query, Datasource: &prometheus, Refresh: 2,
			IncludeAll: true, AllValue: ".*", Multi: true, Sort: 1, Current: map[string]any{"text": "All", "value": "$__all"}}
	}
	return []variable{
		{Name: "datasource", Label: "Data source", Type: "datasource", Query: "prometheus", Current: map[string]any{}},
		newVariable("job", "Job", `label_values(lockkit_acquire_duration_seconds_count, job)`),
		newVariable("name", "Name", `label_values(lockkit_acquire_duration_seconds_count{job=~"$job"}, lockkit_name)`),
	}
}

// toPanel returns the chart in the model of Grafana. Its position and id are not set.
func (c chart) toPanel() panel {
	p := panel{Type: c.kind, Title: c.title, Description: c.description, Datasource: &prometheus,
		FieldConfig: &fieldConfig{Defaults: fieldDefaults{Unit: c.unit}, Overrides: []any{}}}
	defaults := &p.FieldConfig.Defaults
	switch c.kind {
	case "stat":
		defaults.NoValue, defaults.Thresholds = "0", c.newThresholds()
		p.Options = map[string]any{"colorMode": "value", "graphMode": "area", "reduceOptions": map[string]any{"calcs": []string{"lastNotNull"}}}
	case "heatmap":
		p.Options = map[string]any{"calculate": false, "yAxis": map[string]any{"unit": c.unit}, "color": map[string]any{"mode": "scheme", "scheme": "Oranges"},
			"exemplars": map[string]any{"color": "rgba(31,96,196,1)"}, "tooltip": map[string]any{"mode": "single"}}
	case "":
		p.Type = "timeseries"
		defaults.Custom = map[string]any{"fillOpacity": 10, "lineWidth": 1, "showPoints": "never"}
		p.Options = map[string]any{"legend": map[string]any{"displayMode": "table", "placement": "bottom", "calcs": []string{"lastNotNull", "max"}},
			"tooltip": map[string]any{"mode": "multi", "sort": "desc"}}
	}
	for i, q := range c.queries {
		t := target{RefID: string(rune('A' + i)), Datasource: prometheus, Expr: q.expr, LegendFormat: q.legend, Range: true, EditorMode: "code"}
		if c.kind == "heatmap" {
			t.Format = "heatmap"
		}
		t.Exemplar = c.kind == "heatmap" || c.unit == "s" && c.kind == ""
		p.Targets = append(p.Targets, t)
	}
	return p
}

func (c chart) newThresholds() *thresholds {
	at := func(v float64) *float64 { return &v }
	switch c.redWhen {
	case "above 0":
		return &thresholds{"absolute", []step{{"green", nil}, {"red", at(0.000001)}}}
	case "below 1":
		return &thresholds{"absolute", []step{{"red", nil}, {"green", at(1)}}}
	}
	return &thresholds{"absolute", []step{{"blue", nil}}}
}
