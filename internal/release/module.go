package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// publish clones the repository, tags the clone, and lets the go command make the module of it. Then proxy has the
// module. It returns the directory with the module's files.
func (r *release) publish(ctx context.Context) (files string, err error) {
	origin := filepath.Join(r.work, "origin.git")
	_, err = r.git(ctx, "clone", "--quiet", "--bare", "--shared", ".", origin)
	if err != nil {
		return "", err
	}

	_, err = r.git(ctx, "--git-dir", origin, "tag", "--force", r.version.String(), r.commit)
	if err != nil {
		return "", err
	}

	// The go command asks for the module's address, and git goes to the clone instead.
	config := filepath.Join(r.work, "gitconfig")
	insteadOf := fmt.Sprintf("[url %q]\n\tinsteadOf = %q\n", "file://"+filepath.ToSlash(origin), "https://"+r.module)
	err = os.WriteFile(config, []byte(insteadOf), 0o600)
	if err != nil {
		return "", err
	}

	env, err := r.clean(ctx, r.maker())
	if err != nil {
		return "", err
	}

	env = append(env, "GIT_CONFIG_GLOBAL="+config, "GOPROXY=direct")
	answer, err := output(ctx, r.work, env, "go", "mod", "download", "-json", r.module+"@"+r.version.String())
	if err != nil {
		return "", err
	}

	var made struct{ Zip, Dir string }
	err = json.Unmarshal([]byte(answer), &made)
	if err != nil {
		return "", err
	}

	size, err := os.Stat(made.Zip)
	if err != nil {
		return "", err
	}

	err = r.checkComplete(ctx, made.Dir)
	if err != nil {
		return "", err
	}

	r.say("module: %s %s is %s to download", r.module, r.version, megabytes(size.Size()))
	return made.Dir, nil
}

// maker is the module cache in which the module is made.
func (r *release) maker() string { return filepath.Join(r.work, "maker") }

// checkComplete returns an error if the module lacks a file of the commit that belongs to it. The go command leaves out
// nested modules, and also vendor directories and symbolic links.
func (r *release) checkComplete(ctx context.Context, files string) error {
	tree, err := r.git(ctx, "ls-tree", "-r", "-z", "--name-only", r.commit)
	if err != nil {
		return err
	}

	inModule := map[string]bool{}
	err = fs.WalkDir(os.DirFS(files), ".", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			inModule[name] = true
		}
		return err
	})
	if err != nil {
		return err
	}

	missing := missingFiles(strings.Split(strings.TrimSuffix(tree, "\x00"), "\x00"), inModule)
	if len(missing) > 0 {
		return fmt.Errorf("the module lacks these files of the commit, so they must have another place or name:\n%s", strings.Join(missing, "\n"))
	}
	return nil
}

// missingFiles returns the files of a tree that the module lacks, except for files of nested modules.
func missingFiles(tree []string, inModule map[string]bool) (missing []string) {
	nested := nestedModules(tree)
	for _, name := range tree {
		inNested := slices.ContainsFunc(nested, func(dir string) bool { return strings.HasPrefix(name, dir+"/") })
		if !inNested && !inModule[name] {
			missing = append(missing, name)
		}
	}
	return missing
}

// nestedModules returns the directories of a tree that have a go.mod, except for the root.
func nestedModules(tree []string) []string {
	dirs := map[string]bool{}
	for _, name := range tree {
		if path.Base(name) == "go.mod" && name != "go.mod" {
			dirs[path.Dir(name)] = true
		}
	}
	return slices.Sorted(maps.Keys(dirs))
}

// megabytes formats a number of bytes.
func megabytes(bytes int64) string { return fmt.Sprintf("%.1f MB", float64(bytes)/1e6) }
