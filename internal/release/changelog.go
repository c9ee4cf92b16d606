package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// checkChangelog looks for the version in CHANGELOG.md.
func (r *release) checkChangelog(ctx context.Context) error {
	content, err := r.git(ctx, "show", r.commit+":CHANGELOG.md")
	if err != nil {
		return err
	}

	toDo, err := judgeChangelog(content, r.version, r.tagged)
	if err != nil {
		return err
	}

	r.say("CHANGELOG.md has %s", r.version)
	for _, task := range toDo {
		fmt.Fprintf(r.out, "    before the tag: %s\n", task)
	}
	return nil
}

// A part of a changelog is a heading of the second level and the number of entries below it.
type part struct {
	heading string
	entries int
}

// parts returns the parts of a changelog.
func parts(changelog string) (all []part) {
	for line := range strings.Lines(changelog) {
		heading, found := strings.CutPrefix(line, "## ")
		if found {
			all = append(all, part{heading: strings.TrimSpace(heading)})
		} else if strings.HasPrefix(line, "- ") && len(all) > 0 {
			all[len(all)-1].entries++
		}
	}
	return all
}

var dated = regexp.MustCompile(`^ - \d{4}-\d{2}-\d{2}$`)

// judgeChangelog returns the changes that the changelog needs before the version is tagged, or an error if it lacks the
// version. The changelog at a tag may need none.
func judgeChangelog(changelog string, v version, tagged bool) (toDo []string, err error) {
	var entries int
	found := false

	for _, p := range parts(changelog) {
		rest, named := strings.CutPrefix(p.heading, v.String())
		switch {
		case p.heading == "[Unreleased]" && p.entries > 0:
			toDo = append(toDo, fmt.Sprintf("move the %d entries under [Unreleased] below %s", p.entries, v))
		case named && (rest == "" || rest[0] == ',' || rest[0] == ' '):
			found = true
			entries = p.entries
			if !dated.MatchString(rest) {
				toDo = append(toDo, fmt.Sprintf("change the heading %q to %q", "## "+p.heading, "## "+v.String()+" - YYYY-MM-DD"))
			}
		}
	}

	if !found {
		return nil, fmt.Errorf("CHANGELOG.md has no heading of %s: write \"## %s - YYYY-MM-DD\" above what it changes", v, v)
	}
	if entries == 0 {
		return nil, fmt.Errorf("CHANGELOG.md has no entry below the heading of %s: list what it changes", v)
	}
	if tagged && len(toDo) > 0 {
		return nil, errors.New("CHANGELOG.md of a tag must be final: " + strings.Join(toDo, "; "))
	}
	return toDo, nil
}
