package main

import (
	"context"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
)

// buildNested builds the nested modules that require the module with the version, instead of the code beside them.
func (r *release) buildNested(ctx context.Context) error {
	clone := filepath.Join(r.work, "clone")
	_, err := r.git(ctx, "clone", "--quiet", "--shared", "--no-checkout", filepath.Join(r.work, "origin.git"), clone)
	if err != nil {
		return err
	}

	_, err = output(ctx, clone, nil, "git", "checkout", "--quiet", r.commit)
	if err != nil {
		return err
	}

	tree, err := output(ctx, clone, nil, "git", "ls-files", "-z")
	if err != nil {
		return err
	}

	env, err := r.clean(ctx, filepath.Join(r.work, "nested"))
	if err != nil {
		return err
	}

	for _, nested := range nestedModules(strings.Split(tree, "\x00")) {
		dir := filepath.Join(clone, filepath.FromSlash(nested))
		requires, err := r.isRequired(ctx, dir, env)
		if err != nil {
			return err
		}
		if !requires {
			r.say("nested modules: %s does not use the module", nested)
			continue
		}

		// Without replace, the go command takes the module from the proxy.
		edit := []string{"mod", "edit", "-dropreplace", r.module, "-require", r.module + "@" + r.version.String()}
		for _, args := range [][]string{edit, {"build", "./..."}, {"vet", "./..."}} {
			_, err = output(ctx, dir, env, "go", args...)
			if err != nil {
				return err
			}
		}
		r.say("nested modules: %s builds with %s, without replace", nested, r.version)
	}
	return nil
}

// isRequired reports whether the module in a directory requires the module that is checked.
func (r *release) isRequired(ctx context.Context, dir string, env []string) (bool, error) {
	content, err := output(ctx, dir, env, "go", "mod", "edit", "-json")
	if err != nil {
		return false, err
	}

	var mod struct{ Require []struct{ Path string } }
	err = json.Unmarshal([]byte(content), &mod)
	required := slices.ContainsFunc(mod.Require, func(m struct{ Path string }) bool { return m.Path == r.module })
	return required, err
}
