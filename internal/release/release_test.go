package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestParseVersion(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"v0.1.0", "v1.22.333"} {
		v, err := parseVersion(name)
		if err != nil || v.String() != name {
			t.Errorf("%s: %v, %v", name, v, err)
		}
	}
	for _, name := range []string{"", "0.1.0", "v0.1", "v0.1.0-rc.1", "v01.1.0", "v0.1.0 ", "v1.1.1234567890"} {
		v, err := parseVersion(name)
		if err == nil {
			t.Errorf("%q is taken for %v", name, v)
		}
	}
}

func TestLatestBefore(t *testing.T) {
	t.Parallel()
	tags := "nightly\nv0.10.0\nv0.2.9\nv0.9.1\nv1.0.0\nv1.0.0-rc.1\n"
	for of, want := range map[version]version{
		{0, 9, 1}:  {0, 2, 9},
		{0, 11, 0}: {0, 10, 0},
		{1, 0, 0}:  {0, 10, 0},
		{1, 0, 1}:  {1, 0, 0},
	} {
		got, found := latestBefore(of, tags)
		if !found || got != want {
			t.Errorf("before %v: %v, want %v", of, got, want)
		}
	}

	got, found := latestBefore(version{0, 1, 0}, tags)
	if found {
		t.Errorf("before v0.1.0: %v", got)
	}
}

func TestChangelog(t *testing.T) {
	t.Parallel()
	first := version{0, 1, 0}
	for _, c := range []struct {
		name, changelog string
		tagged          bool
		toDo            int
		err             string // a part of it
	}{
		{name: "final", changelog: "## [Unreleased]\n\n## v0.1.0 - 2026-12-01\n\n- A\n", tagged: true},
		{name: "without a date", changelog: "## v0.1.0, not released yet\n\n- A\n", toDo: 1},
		{name: "entries above it", changelog: "## [Unreleased]\n\n- B\n\n## v0.1.0 - 2026-12-01\n\n- A\n", toDo: 1},
		{name: "a tag without a date", changelog: "## v0.1.0, not released yet\n\n- A\n", tagged: true, err: "must be final"},
		{name: "missing", changelog: "## [Unreleased]\n\n- B\n\n## v0.1.01\n\n- A\n", err: `write "## v0.1.0 - YYYY-MM-DD"`},
		{name: "empty", changelog: "## v0.1.0 - 2026-12-01\n\n## v0.0.1 - 2026-11-01\n\n- A\n", err: "no entry"},
	} {
		toDo, err := judgeChangelog(c.changelog, first, c.tagged)
		if len(toDo) != c.toDo {
			t.Errorf("%s: left to do: %q", c.name, toDo)
		}
		if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.err)
		}
	}
}

func TestAPI(t *testing.T) {
	t.Parallel()
	before := map[string][]string{"core": {"func A()", "func B()"}, "gone": {"func C()"}}
	now := map[string][]string{"core": {"func A(n int)", "func B()"}, "new": {"func C()"}}
	removed, added := difference(before, now), difference(now, before)
	if !slices.Equal(removed, []string{"core: func A()", "gone: func C()"}) {
		t.Errorf("removed: %q", removed)
	}
	if !slices.Equal(added, []string{"core: func A(n int)", "new: func C()"}) {
		t.Errorf("added: %q", added)
	}

	for _, c := range []struct {
		v, last version
		breaks  bool // without leave
	}{
		{version{0, 1, 1}, version{0, 1, 0}, true},
		{version{0, 2, 0}, version{0, 1, 0}, false},
		{version{1, 0, 0}, version{0, 9, 0}, false},
		{version{1, 2, 0}, version{1, 1, 0}, true},
		{version{2, 0, 0}, version{1, 1, 0}, false},
	} {
		if err := judgeAPI(c.v, c.last, removed); (err != nil) != c.breaks {
			t.Errorf("%v after %v, without declarations: %v", c.v, c.last, err)
		}
		if err := judgeAPI(c.v, c.last, nil); err != nil {
			t.Errorf("%v after %v: %v", c.v, c.last, err)
		}
	}
}

func TestMissingFiles(t *testing.T) {
	t.Parallel()
	tree := []string{"a.go", "go.mod", "nested/deep/b.go", "nested/deep/go.mod", "nested/c.go", "page/vendor/lib/d.js"}
	inModule := map[string]bool{"a.go": true, "go.mod": true, "nested/c.go": true}
	missing := missingFiles(tree, inModule)
	if !slices.Equal(missing, []string{"page/vendor/lib/d.js"}) {
		t.Errorf("missing: %q", missing)
	}
}

func TestLinkedModules(t *testing.T) {
	t.Parallel()
	got := linkedModules("program: go1.26.8\n\tpath\texample.com/outside\n\tmod\texample.com/outside\t(devel)\t\n" +
		"\tdep\tgithub.com/cespare/xxhash/v2\tv2.3.0\th1:UL=\n\tdep\tgo.uber.org/atomic\tv1.11.0\th1:ZZ=\n\tbuild\t-trimpath=true\n")
	if !slices.Equal(got, []string{"github.com/cespare/xxhash/v2 v2.3.0", "go.uber.org/atomic v1.11.0"}) {
		t.Errorf("linked: %q", got)
	}
}

// repository makes a git repository with one commit of these files, and its release.
func repository(t *testing.T, files map[string]string) *release {
	t.Helper()
	_, err := exec.LookPath("git")
	if err != nil {
		t.Skip("git is not installed")
	}

	r := &release{repository: t.TempDir(), version: version{0, 1, 0}, work: t.TempDir(), out: &bytes.Buffer{}}
	for name, content := range files {
		write(t, filepath.Join(r.repository, name), content)
	}
	for _, args := range [][]string{
		{"init", "--quiet"},
		{"add", "--all"},
		{"-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false", "commit", "--quiet", "--message", "first"},
	} {
		_, err := r.git(t.Context(), args...)
		if err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// write writes a file and its directories.
func write(t *testing.T, path, content string) {
	t.Helper()
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err != nil {
		t.Fatal(err)
	}
	err = os.WriteFile(path, []byte(content), 0o600)
	if err != nil {
		t.Fatal(err)
	}
}

// Files that are not as committed would not be in the tag.
func TestCleanTree(t *testing.T) {
	t.Parallel()
	r := repository(t, map[string]string{"go.mod": "module github.com/lockkit/example\n\ngo 1.24\n", "a.go": "package a\n"})
	err := r.choose(t.Context())
	if err != nil || r.tagged || r.module != "github.com/lockkit/example" {
		t.Fatalf("%+v: %v", r, err)
	}

	write(t, filepath.Join(r.repository, "a.go"), "package b\n")
	err = r.choose(t.Context())
	if err == nil || !strings.Contains(err.Error(), "a.go") {
		t.Errorf("a changed file: %v", err)
	}

	// The tag does not have them either, but it is there.
	_, err = r.git(t.Context(), "tag", "v0.1.0")
	if err != nil {
		t.Fatal(err)
	}
	err = r.choose(t.Context())
	if err != nil || !r.tagged {
		t.Errorf("with a tag: %+v: %v", r, err)
	}
}

// The module is made of the commit without a network, and a file that it lacks is an error.
func TestPublish(t *testing.T) {
	t.Parallel()
	files := map[string]string{
		"go.mod":        "module github.com/lockkit/example\n\ngo 1.24\n",
		"a.go":          "package a\n",
		"nested/go.mod": "module github.com/lockkit/example/nested\n\ngo 1.24\n",
		"nested/b.go":   "package b\n",
	}
	for _, page := range []string{"page/lib/d.js", "page/vendor/lib/d.js"} {
		files[page] = "d();\n"
		r := repository(t, files)
		err := r.choose(t.Context())
		if err != nil {
			t.Fatal(err)
		}

		dir, err := r.publish(t.Context())
		if strings.Contains(page, "vendor") {
			if err == nil || !strings.Contains(err.Error(), page) {
				t.Errorf("%s: %v", page, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		_, err = os.Stat(filepath.Join(dir, "a.go"))
		if err != nil {
			t.Error(err)
		}
		_, err = os.Stat(filepath.Join(dir, "nested", "b.go"))
		if err == nil {
			t.Error("the module has files of the nested module")
		}
	}
}
