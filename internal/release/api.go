package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
)

// checkAPI compares docs/api with the last earlier version's, if there is one.
func (r *release) checkAPI(ctx context.Context) error {
	tags, err := r.git(ctx, "tag", "--merged", r.commit)
	if err != nil {
		return err
	}
	last, found := latestBefore(r.version, tags)
	if !found {
		r.say("API: there is no earlier version to compare with")
		return nil
	}

	// Both versions are read from git, so the working tree does not matter.
	before, err := r.declarations(ctx, "refs/tags/"+last.String())
	if err != nil {
		return err
	}
	now, err := r.declarations(ctx, r.commit)
	if err != nil {
		return err
	}

	removed, added := difference(before, now), difference(now, before)
	r.say("API: %d lines of %s are gone or changed in docs/api, and %d are new", len(removed), last, len(added))
	for _, line := range removed {
		fmt.Fprintf(r.out, "    - %s\n", line)
	}
	for _, line := range added {
		fmt.Fprintf(r.out, "    + %s\n", line)
	}
	return judgeAPI(r.version, last, removed)
}

// judgeAPI returns an error if lines were removed since the last version, and this version may not remove any.
func judgeAPI(v, last version, removed []string) error {
	if len(removed) == 0 || v.mayBreak(last) {
		return nil
	}
	return fmt.Errorf("%s breaks the API of %s: keep what is gone, or choose another version", v, last)
}

// declarations returns the lines of docs/api at a revision, by package. Internal packages are not in it.
func (r *release) declarations(ctx context.Context, revision string) (map[string][]string, error) {
	names, err := r.git(ctx, "ls-tree", "--name-only", revision, "docs/api/")
	if err != nil {
		return nil, err
	}

	lines := map[string][]string{}
	for name := range strings.FieldsSeq(names) {
		if path.Ext(name) != ".txt" {
			continue
		}
		content, err := r.git(ctx, "show", revision+":"+name)
		if err != nil {
			return nil, err
		}
		lines[strings.TrimSuffix(path.Base(name), ".txt")] = strings.Split(strings.TrimSuffix(content, "\n"), "\n")
	}

	if len(lines) == 0 {
		return nil, errors.New("docs/api is empty at " + revision)
	}
	return lines, nil
}

// difference returns the lines of a that b lacks, each after its package.
func difference(a, b map[string][]string) (lines []string) {
	for _, pkg := range slices.Sorted(maps.Keys(a)) {
		for _, line := range a[pkg] {
			if !slices.Contains(b[pkg], line) {
				lines = append(lines, pkg+": "+line)
			}
		}
	}
	return lines
}
