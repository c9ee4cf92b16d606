package main

import (
	"fmt"
	"path"
	"strings"
)

// A section is a part of the report.
type section struct {
	title, text string
	parts       []part
	charts      []*chart
	notes       []string
	goals       []*goal
}

type part struct {
	title string
	table *table
}

func (s *section) add(title string, t *table, charts ...*chart) {
	s.parts = append(s.parts, part{title, t})
	s.charts = append(s.charts, charts...)
}

// note says so if calls failed, or hung.
func (s *section) note(r result, format string, args ...any) {
	if r.failures > 0 {
		s.notes = append(s.notes, fmt.Sprintf("%s, %s: %d calls failed, the first with: %v", fmt.Sprintf(format, args...), r.peer, r.failures, r.failure))
	}
	if len(r.hung) > 0 {
		s.notes = append(s.notes, fmt.Sprintf("%s, %s: %v; rounds not counted: %d", fmt.Sprintf(format, args...), r.peer, r.hung[0], len(r.hung)))
	}
}

// markdown renders the section, with its charts below the directory charts; none if that is empty.
func (s *section) markdown(charts string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "## %s\n\n%s\n", s.title, s.text)
	if charts != "" {
		for i, c := range s.charts {
			if i == 0 {
				b.WriteString("\n")
			}
			fmt.Fprintf(&b, "![%s](%s)\n", c.title, path.Join(charts, c.file))
		}
	}
	for _, p := range s.parts {
		if p.title != "" {
			fmt.Fprintf(&b, "\n### %s\n", p.title)
		}
		fmt.Fprintf(&b, "\n%s", p.table)
	}
	for i, n := range s.notes {
		if i == 0 {
			b.WriteString("\nFailures:\n\n")
		}
		fmt.Fprintf(&b, "- %s\n", strings.ReplaceAll(n, "\n", "; "))
	}
	return b.String()
}
