package main

import (
	"context"
	"errors"
	"strings"
)

// choose finds the commit: the tag's, or else the working tree's, which must be clean.
func (r *release) choose(ctx context.Context) error {
	path, err := output(ctx, r.repository, nil, "go", "list", "-m")
	if err != nil {
		return err
	}
	r.module = strings.TrimSpace(path)

	tags, err := r.git(ctx, "tag", "--list", r.version.String())
	if err != nil {
		return err
	}
	r.tagged = tags != ""

	// Without a tag, the commit must have everything that the working tree has.
	revision := "HEAD"
	if r.tagged {
		revision = "refs/tags/" + r.version.String()
	} else {
		changes, err := r.git(ctx, "status", "--porcelain")
		if err != nil {
			return err
		}
		if changes != "" {
			return errors.New("a tag names a commit, and these files are not as committed:\n" + changes)
		}
	}

	commit, err := r.git(ctx, "rev-parse", "--verify", revision+"^{commit}")
	if err != nil {
		return err
	}
	r.commit = strings.TrimSpace(commit)

	if r.tagged {
		r.say("%s at its tag, commit %.12s", r.version, r.commit)
	} else {
		r.say("%s as if commit %.12s had that tag", r.version, r.commit)
	}
	return nil
}
