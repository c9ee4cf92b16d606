package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/testutil"
)

// ctl runs lockctl as main does, with the environment env.
func ctl(t *testing.T, env map[string]string, args ...string) said {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), args, &stdout, &stderr, func(name string) string { return env[name] })
	got := said{code, stdout.String(), stderr.String()}
	if strings.Contains(got.out+got.err, "topsecret") {
		t.Errorf("lockctl %v prints a password:\n%s%s", args, got.out, got.err)
	}
	return got
}

// slowly are parts of what lockctl says if a machine is too busy for a node to answer in time.
var slowly = regexp.MustCompile(`within the node timeout|the request arrived too late|i/o timeout`)

// answered calls lockctl on real servers until those that are up answer in time. The command must be one that may be
// repeated.
func answered(t *testing.T, env map[string]string, args ...string) (got said) {
	t.Helper()
	testutil.Await(t, "all nodes answer in time", func() bool {
		got = ctl(t, env, args...)
		return !slowly.MatchString(got.out + got.err)
	})
	return got
}

// succeeded calls f, which asks real servers, until enough of them answer in time. It returns the result of f.
func succeeded[T any](t *testing.T, f func() (T, error)) (got T) {
	t.Helper()
	var err error
	testutil.Await(t, "a quorum answers in time", func() bool {
		got, err = f()
		return !errors.Is(err, core.ErrUnavailable)
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// A wrong call has exit status 2, and prints one line that says what to do.
func TestUsageErrors(t *testing.T) {
	t.Parallel()
	const node = "127.0.0.1:1"
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"ls"}, "no nodes: give --node"},
		{[]string{"doctor"}, "no nodes: give --node"},
		{[]string{"bogus"}, "no such command"},
		{[]string{"redis://:topsecret@host:6379", "ls"}, "no such command"},
		{[]string{"--bogus", "ls"}, "see lockctl --help"},
		{[]string{"--node", node, "ls", "--bogus"}, "see lockctl ls --help"},
		{[]string{"--node", node, "ls", "a", "b"}, "quote it"},
		{[]string{"--node", node, "show"}, "give one key"},
		{[]string{"--node", node, "show", "a", "b"}, "--parts"},
		{[]string{"--node", node, "show", "--parts"}, "give one key"},
		{[]string{"--node", node, "show", ""}, "the key is empty"},
		{[]string{"--node", node, "show", strings.Repeat("k", 513)}, "a key must have 1 to 512 bytes"},
		{[]string{"--node", node, "leaks", "k"}, "no arguments"},
		{[]string{"--node", node, "doctor", "k"}, "no arguments"},
		{[]string{"--node", node, "ready", "k"}, "no arguments"},
		{[]string{"--node", node, "provision", "k"}, "no arguments"},
		{[]string{"--node", node, "release", "k"}, "--token is missing"},
		{[]string{"--node", node, "release", "--token", "7"}, "give one key"},
		{[]string{"--node", node, "release", "k", "--token", "0"}, "greater than 0"},
		{[]string{"--node", node, "release", "k", "--token", "-7"}, "greater than 0"},
		{[]string{"--node", node, "release", "k", "--token", "seven"}, "greater than 0"},
		{[]string{"--node", node, "forget-record", "k"}, "--token is missing"},
		{[]string{"--node", node, "ls", "-o", "xml"}, "-o is table or json"},
		{[]string{"--node", node, "doctor", "-o", "xml"}, "-o is table or json"},
		{[]string{"--node", node, "ls", "--timeout", "0s"}, "--timeout"},
		{[]string{"--node", node, "ls", "--timeout", "soon"}, "see lockctl ls --help"},
		{[]string{"--node", node, "--prefix", "{", "ls"}, "braces"},
		{[]string{"--node", node, "--clock-window", "1h", "ls"}, "clock window"},
		{[]string{"--node", "redis://u:topsecret@@:x", "ls"}, "it must be a URL"},
		{[]string{"--node", "http://u:topsecret@host", "doctor"}, "it must be a URL"},
		{[]string{"--node"}, "see lockctl --help"},
		{[]string{"--node", "redis://:topsecret@host?addr=other:6379", "doctor"}, "it must be a URL"},
		{[]string{"--node", "redis-sentinel://:topsecret@host", "ls"}, "master_name is missing"},
		{[]string{"--node", node, "ls", "--ca", os.DevNull}, "no certificate in PEM"},
		{[]string{"--node", node, "ls", "--ca", "/no/such/file"}, "/no/such/file"},
		{[]string{"--node", node, "doctor", "--cert", "/no/such/file"}, "--cert-key"},
		{[]string{"--node", node, "doctor", "--cert-key", "/no/such/file"}, "--cert-key"},
		{[]string{"--node", node, "doctor", "--replica-lag", "3s"}, "the restart guard is off"},
	} {
		got := ctl(t, nil, c.args...)
		if got.code != exitUsage || got.out != "" || strings.Count(got.err, "\n") != 1 || !strings.HasPrefix(got.err, "lockctl: ") || !strings.Contains(got.err, c.want) {
			t.Errorf("lockctl %q: %+v", c.args, got)
		}
	}
}

// A comma in a password does not split URLs that are given one by one.
func TestNodesByOption(t *testing.T) {
	t.Parallel()
	env := map[string]string{"LOCKKIT_NODES": "redis://127.0.0.1:3"}
	got := ctl(t, env, "doctor", "-o", "json", "--node", "redis://:topsecret,too@127.0.0.1:1", "--node", "127.0.0.1:2")
	nodes := decoded[doctorJSON](t, got.out).Nodes
	if len(nodes) != 2 || nodes[0].Addr != "127.0.0.1:1" || nodes[1].Addr != "127.0.0.1:2" {
		t.Errorf("%+v", got)
	}
}

// The exit status of doctor reports a risk like a fault.
func TestDoctorOnARisk(t *testing.T) {
	t.Parallel()
	// The server keeps no data on disk. It is alone, and without the restart guard.
	server := testutil.NewServers(t, 1)[0]
	got := ctl(t, nil, "doctor", "--node", "redis://"+server.Addr())
	if got.code != exitProblem || got.err != "" || !strings.Contains(got.out, "RISK ") || strings.Contains(got.out, "FAULT") {
		t.Errorf("%+v", got)
	}
}

func TestHelp(t *testing.T) {
	t.Parallel()
	env := map[string]string{"LOCKKIT_NODES": "redis://:topsecret@host:6379"}
	for _, args := range [][]string{nil, {"--help"}, {"-h"}} {
		got := ctl(t, env, args...)
		for _, c := range (&app{}).commands() {
			if !strings.Contains(got.out, "\n   "+c.Name+" ") {
				t.Errorf("lockctl %v does not tell of %s", args, c.Name)
			}
		}
		if got.code != exitOK || got.err != "" {
			t.Errorf("%+v", got)
		}
	}
	for _, c := range (&app{}).commands() {
		if got := ctl(t, env, c.Name, "--help"); got.code != exitOK || !strings.Contains(got.out, "DESCRIPTION") {
			t.Errorf("lockctl %s --help: %+v", c.Name, got)
		}
	}
}

// No command prints the password of a node, whatever is wrong with the node.
func TestPasswordsAreNotPrinted(t *testing.T) {
	t.Parallel()
	strict := testutil.NewServers(t, 1)[0]
	if err := strict.Client().ConfigSet(t.Context(), "requirepass", "another").Err(); err != nil {
		t.Fatal(err)
	}

	for _, urls := range []string{
		"redis://:topsecret@127.0.0.1:1", // no server listens
		"redis://user:topsecret@" + strict.Addr(),
		"redis://:topsecret@" + strict.Addr(),
		"rediss://:topsecret@" + strict.Addr(), // the server does not speak TLS
		"redis://:topsecret@no-such-host.invalid:6379",
		"redis://:topsecret@127.0.0.1:99999",
		"redis://:topsecret@127.0.0.1:1/not-a-database",
		"redis://:topsecret,@127.0.0.1:1,redis://:topsecret@127.0.0.1:2",
		"unix://user:topsecret@/no/such/socket",
		"://topsecret", ":topsecret@127.0.0.1:1",
	} {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			for _, c := range (&app{}).commands() {
				args := []string{c.Name}
				if silent := strings.HasPrefix(urls, "rediss"); silent && c.Name != "doctor" && c.Name != "ls" {
					continue // each of the others waits for seconds
				}
				switch c.Name {
				case "show":
					args = append(args, "k")
				case "release", "forget-record":
					args = append(args, "k", "--token", "7")
				case "provision":
					args = append(args, "--timeout", "50ms")
				}
				got := ctl(t, map[string]string{"LOCKKIT_NODES": urls}, args...)
				if got.code == exitOK {
					t.Errorf("%s with %s: %+v", c.Name, urls, got)
				}
			}
		})
	}
}

// A command that takes too long ends with an error that says what to do.
func TestTimeout(t *testing.T) {
	atDesk(t, 3, func(t *testing.T, d *desk) {
		d.service()
		for _, n := range d.nodes {
			n.Slow(300 * time.Millisecond)
		}
		got := d.ctl("ls", "--timeout", "500ms")
		if got.code != exitProblem || got.out != "" || got.err != "lockctl: no result within 500ms: give it longer with --timeout, or ask doctor which node is slow\n" {
			t.Errorf("%+v", got)
		}
	})
}

func TestProvisionAndReady(t *testing.T) {
	atDesk(t, 3, func(t *testing.T, d *desk) {
		if got := d.ctl("ready"); got.code != exitProblem || !strings.Contains(got.err, "quarantined for another 10s") {
			t.Errorf("%+v", got)
		}
		for _, n := range d.nodes {
			n.RestartEmpty()
		}
		if out := d.well("provision"); out != "3 nodes: every one votes.\n" {
			t.Error(out)
		}
		if out := d.well("ready"); out != "Ready: a quorum of 3 nodes would grant a lock.\n" {
			t.Error(out)
		}
		if got := decoded[provisionJSON](t, d.well("provision", "-o", "json")); got.Voting != 3 {
			t.Errorf("%+v", got)
		}
		if got := decoded[readyJSON](t, d.well("ready", "-o", "json")); !got.Ready {
			t.Errorf("%+v", got)
		}

		d.release(d.acquire(d.service(), "k"))
		d.nodes[0].RestartEmpty()
		if got := d.ctl("provision"); got.code != exitProblem || !strings.Contains(got.err, "node 0 ("+d.nodes[0].Name()+")") {
			t.Errorf("%+v", got)
		}
		d.well("ready")

		d.nodes[1].Down()
		if got := d.ctl("ready"); got.code != exitProblem || got.out != "" {
			t.Errorf("%+v", got)
		}
		d.nodes[1].Up()

		// A service would not start, although the other nodes are a quorum that votes.
		time.Sleep(10 * time.Second) // node 0 is in quarantine
		d.well("ready")
		d.nodes[1].SetEvictionPolicy("volatile-lru", 1<<20)
		got := d.ctl("ready")
		if got.code != exitProblem || got.out != "" {
			t.Errorf("%+v", got)
		}
		wantParts(t, got.err, "node 1 (", "maxmemory-policy is volatile-lru", "set it to noeviction")
	})
}

// Commands that only read leave no guard record on nodes that have none, and no other key.
func TestLookingChangesNothing(t *testing.T) {
	atDesk(t, 3, func(t *testing.T, d *desk) {
		d.ctl("doctor")
		d.well("ls")
		d.ctl("show", "k") // fails, because new nodes may have forgotten the key
		d.well("leaks")
		for _, n := range d.nodes {
			if keys := n.Keys(); len(keys) > 0 {
				t.Errorf("%s has %q", n.Name(), keys)
			}
		}
	})
}

func TestDoctor(t *testing.T) {
	atDesk(t, 3, func(t *testing.T, d *desk) {
		d.service()
		out := d.well("doctor")
		if !strings.Contains(out, "NODE  ADDRESS") || strings.Contains(out, "FAULT") {
			t.Error(out)
		}

		d.nodes[1].Down()
		d.nodes[2].SetEvictionPolicy("allkeys-lru", 1<<20)
		got := d.ctl("doctor")
		if got.code != exitProblem || got.err != "" || !strings.Contains(got.out, "FAULT   node 1 "+d.nodes[1].Name()+" ") {
			t.Errorf("%+v", got)
		}

		var votes []string
		for _, line := range strings.Split(got.out, "\n")[1:4] {
			votes = append(votes, strings.Fields(line)[3])
		}
		if want := []string{"yes", "no", "no"}; !slices.Equal(votes, want) {
			t.Errorf("votes %q, want %q:\n%s", votes, want, got.out)
		}

		j := decoded[doctorJSON](t, d.ctl("doctor", "-o", "json").out)
		var codes []string
		for _, f := range j.Findings {
			if f.Severity == "fault" {
				codes = append(codes, f.Code)
			}
		}
		if j.Healthy || len(j.Nodes) != 3 || strings.Join(codes, " ") != "unreachable evicting no_quorum" && strings.Join(codes, " ") != "no_quorum unreachable evicting" {
			t.Errorf("%v, %+v", codes, j)
		}
	})
}

// main.go is short, because it cannot be tested. No other file is long.
func TestFilesAreShort(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if n := bytes.Count(content, []byte("\n")); file == "main.go" && n >= 100 || n > 400 {
			t.Errorf("%s has %d lines", file, n)
		}
	}
}

// wantJSON checks that a command has printed one or more JSON objects.
func wantJSON(t *testing.T, out string) {
	t.Helper()
	in := json.NewDecoder(strings.NewReader(out))
	for n := 0; ; n++ {
		var object map[string]any
		if err := in.Decode(&object); err != nil {
			if n == 0 {
				t.Errorf("%v in %q", err, out)
			}
			return
		}
	}
}

func TestBrief(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "0s", 1500: "2µs", 800 * time.Microsecond: "800µs", 12345 * time.Microsecond: "12.3ms", 9876 * time.Millisecond: "9.9s", -2 * time.Second: "-2s",
		10 * time.Second: "10s", 59960 * time.Millisecond: "1m", 70 * time.Second: "1m10s", time.Hour: "1h", time.Hour + 30*time.Second: "1h0m30s",
		90 * time.Minute: "1h30m", 72 * time.Hour: "3 days", 100 * time.Minute: "1h40m", 20 * time.Minute: "20m",
	} {
		if got := formatDuration(d); got != want {
			t.Errorf("%v is %s, want %s", d, got, want)
		}
	}
}

func TestPlain(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"order:42": "order:42", "a b": `"a b"`, "": `""`, "\x1b[2J": `"\x1b[2J"`, "ключ": "ключ", "\xff": `"\xff"`, `q"`: `"q\""`} {
		if got := quoteIfNeeded(text); got != want {
			t.Errorf("%q is %s, want %s", text, got, want)
		}
	}
}

// Each call of lockctl in the manual is valid, and the manual's table has all commands.
func TestManual(t *testing.T) {
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	manual := string(text)
	_, section, found := strings.Cut(manual, "\n## lockctl\n")
	section, _, _ = strings.Cut(section, "\n## ")
	if !found {
		t.Fatal("the manual has no section on lockctl")
	}
	for _, c := range (&app{}).commands() {
		if !strings.Contains(section, "\n| `"+c.Name) {
			t.Errorf("the table lacks %s", c.Name)
		}
	}
	calls := regexp.MustCompile(`(?m)^\$ lockctl (.*)$`).FindAllStringSubmatch(section, -1)
	if len(calls) < 5 {
		t.Errorf("found %d calls", len(calls))
	}
	atDesk(t, 3, func(t *testing.T, d *desk) {
		d.service()
		for _, call := range calls {
			args := strings.Fields(call[1])
			if got := d.ctl(args...); got.code == exitUsage {
				t.Errorf("lockctl %v: %s", args, got.err)
			}
		}
	})
}
