package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lockkit/lockkit/testutil"
)

// adapters are the packages that bring a library of their own.
var adapters = []string{"cronlock", "cronlock/gocronlock", "queuelock", "httplock", "otel/otellock"}

// A user is a module outside the repository that requires the module for one of its packages.
type user struct {
	pkg      string
	dir      string
	env      []string
	cache    string   // its module cache
	graph    []string // go list -m all, without the user's module itself
	linked   []string // modules of the graph that the program has code of
	requires int      // the modules that the user's go.mod names
	loaded   int      // the modules of which code was downloaded
	bytes    int64    // their size
}

// useOutside builds a program outside the repository for core and for each adapter, and runs the README's.
func (r *release) useOutside(ctx context.Context, files string) error {
	program, err := os.ReadFile(filepath.Join(files, "examples", "minimal", "core", "main.go"))
	if err != nil {
		return err
	}

	core, err := r.build(ctx, "core", string(program))
	if err != nil {
		return err
	}

	r.say("%s", core)
	for _, module := range core.graph {
		mark := " "
		if slices.Contains(core.linked, module) {
			mark = "*"
		}
		fmt.Fprintf(r.out, "  %s %s\n", mark, module)
	}
	fmt.Fprintln(r.out, "  (go list -m all; * is linked into a program that imports core alone)")

	err = r.runProgram(ctx, core)
	if err != nil {
		return err
	}

	for _, adapter := range adapters {
		u, err := r.build(ctx, adapter, fmt.Sprintf("package main\n\nimport _ %q\n\nfunc main() {}\n", r.module+"/"+adapter))
		if err != nil {
			return err
		}
		r.say("%s", u)
		for _, module := range u.linked {
			if !slices.Contains(core.linked, module) {
				fmt.Fprintf(r.out, "  + %s\n", module)
			}
		}
	}
	return nil
}

// build makes a module with a program, as a user of a package does: go mod init, go get, go build. Nothing was downloaded
// before.
func (r *release) build(ctx context.Context, pkg, program string) (*user, error) {
	name := strings.ReplaceAll(pkg, "/", "-")
	u := &user{pkg: pkg, dir: filepath.Join(r.work, "outside", name), cache: filepath.Join(r.work, "cache-"+name)}
	err := os.MkdirAll(u.dir, 0o700)
	if err != nil {
		return nil, err
	}
	err = os.WriteFile(filepath.Join(u.dir, "main.go"), []byte(program), 0o600)
	if err != nil {
		return nil, err
	}

	u.env, err = r.clean(ctx, u.cache)
	if err != nil {
		return nil, err
	}

	for _, args := range [][]string{
		{"mod", "init", "example.com/outside"},
		{"get", r.module + "/" + pkg + "@" + r.version.String()},
		{"build", "-o", "program", "."},
	} {
		_, err = output(ctx, u.dir, u.env, "go", args...)
		if err != nil {
			return nil, err
		}
	}
	return u, u.measure(ctx)
}

// measure counts the modules of the program. Downloads are counted first, because go list adds to them.
func (u *user) measure(ctx context.Context) error {
	loaded := os.DirFS(filepath.Join(u.cache, "cache", "download"))
	err := fs.WalkDir(loaded, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(name) != ".zip" {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			u.loaded++
			u.bytes += info.Size()
		}
		return err
	})
	if err != nil {
		return err
	}

	mod, err := os.ReadFile(filepath.Join(u.dir, "go.mod"))
	if err != nil {
		return err
	}
	u.requires = strings.Count(string(mod), " v")

	graph, err := output(ctx, u.dir, u.env, "go", "list", "-m", "all")
	if err != nil {
		return err
	}
	_, others, _ := strings.Cut(graph, "\n")
	u.graph = strings.Split(strings.TrimSpace(others), "\n")

	linked, err := output(ctx, u.dir, u.env, "go", "version", "-m", "program")
	if err != nil {
		return err
	}

	u.linked = linkedModules(linked)
	if len(u.linked) == 0 {
		return errors.New("the program links no module: " + linked)
	}
	return nil
}

// linkedModules reads the dependencies in the output of go version -m, each as go list -m has it.
func linkedModules(version string) (modules []string) {
	for line := range strings.Lines(version) {
		fields := strings.Fields(line)
		if len(fields) >= 3 && fields[0] == "dep" {
			modules = append(modules, fields[1]+" "+fields[2])
		}
	}
	return modules
}

func (u *user) String() string {
	return fmt.Sprintf("outside, %s alone: %d modules in the graph, %d in the user's go.mod, %d downloaded (%s), %d linked",
		u.pkg, len(u.graph), u.requires, u.loaded, megabytes(u.bytes), len(u.linked))
}

// runProgram runs the README's program twice on a new Redis: it pays once.
func (r *release) runProgram(ctx context.Context, u *user) error {
	redis, err := testutil.StartServer(r.work)
	if err != nil {
		return err
	}
	defer redis.Close()

	for _, want := range []string{"paid", "paid before"} {
		cmd := exec.CommandContext(ctx, filepath.Join(u.dir, "program"), "42")
		cmd.Env = append(os.Environ(), "LOCKKIT_NODES=redis://"+redis.Addr())
		said, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("the README's program: %w\n%s", err, said)
		}
		if !strings.Contains(string(said), "INFO "+want+" invoice=42") {
			return fmt.Errorf("the README's program does not say %q: %s", want, said)
		}
		fmt.Fprintf(r.out, "    %s", said)
	}
	r.say("outside, the README's program paid once")
	return nil
}
