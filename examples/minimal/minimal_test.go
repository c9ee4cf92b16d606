// Package minimal runs the examples that users copy.
package minimal

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/examples/internal/newnodes"
	"github.com/lockkit/lockkit/testutil"
)

var examples = []string{"core", "cron", "http", "leader", "once", "otel", "queue", "service"}

// Each example is one short file. It imports nothing that is internal or only for tests.
func TestToBeCopied(t *testing.T) {
	t.Parallel()
	var found []string
	mains, err := filepath.Glob("*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range mains {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, filepath.Dir(path))
		most := 80
		switch filepath.Dir(path) {
		case "service": // uses all adapters
			most = 190
		case "once": // uses all adapters and two drivers
			most = 260
		}
		if lines := strings.Count(string(content), "\n"); lines > most {
			t.Errorf("%s has %d lines, more than %d", path, lines, most)
		}
		for _, no := range []string{"lockkit/testutil", "lockkit/internal", "lockkit/examples"} {
			if strings.Contains(string(content), `"github.com/lockkit/`+no) {
				t.Errorf("%s imports %s", path, no)
			}
		}
	}
	if !slices.Equal(found, examples) {
		t.Errorf("the examples are %v, each in one file; want %v", found, examples)
	}
}

// Without nodes, each example says which setting is missing.
func TestWithoutNodes(t *testing.T) {
	t.Parallel()
	for _, name := range examples {
		p := start(t, name+" 42", "LOCKKIT_NODES=") // without the argument, core would say that it needs one
		p.await(t, "redis://localhost:6379")
		if p.ended(t) == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestCore(t *testing.T) {
	t.Parallel()
	env := nodes(t)
	for _, said := range []string{"INFO paid invoice=42 token=", "INFO paid before invoice=42"} {
		p := start(t, "core 42", env)
		p.await(t, said)
		if err := p.ended(t); err != nil {
			t.Error(err)
		}
	}
}

func TestCron(t *testing.T) {
	t.Parallel()
	p := start(t, "cron", nodes(t))
	p.await(t, "INFO invoices written tick=")
	p.stop(t)
}

// One of two processes leads. When it has shut down, the other process leads.
func TestLeader(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no such signal")
	}
	env := nodes(t)
	first := start(t, "leader", env)
	first.await(t, "INFO swept")
	second := start(t, "leader", env)
	second.await(t, "INFO started")
	first.stop(t)
	second.await(t, "INFO leading token=")
	second.await(t, "INFO swept")
	second.stop(t)
}

func TestQueue(t *testing.T) {
	t.Parallel()
	p := start(t, "queue", nodes(t), queue(t))
	p.await(t, "INFO charged task=")
	p.stop(t)
}

func TestHTTP(t *testing.T) {
	t.Parallel()
	p, url := serve(t, "http", nodes(t), "GIN_MODE=release")
	if status, body := request(t, http.MethodPut, url+"/orders/42"); status != http.StatusOK || !strings.Contains(body, `"token":`) {
		t.Errorf("an update is answered with %d %s", status, body)
	}
	status, first := request(t, http.MethodPost, url+"/orders/42/payments")
	if status != http.StatusCreated || !strings.Contains(first, `"request":`) {
		t.Errorf("a payment is answered with %d %s", status, first)
	}
	if _, again := request(t, http.MethodPost, url+"/orders/42/payments"); again != first {
		t.Errorf("its repetition is answered with %s instead of %s", again, first)
	}
	p.stop(t)
}

// A payment that is repeated at another replica, on another port, is made once. examples/README.md suggests this trial.
func TestHTTPReplicas(t *testing.T) {
	t.Parallel()
	env := nodes(t)
	one, urlOfOne := serve(t, "http", env, "GIN_MODE=release")
	two, urlOfTwo := serve(t, "http", env, "GIN_MODE=release")
	_, first := request(t, http.MethodPost, urlOfOne+"/orders/42/payments")
	if _, again := request(t, http.MethodPost, urlOfTwo+"/orders/42/payments"); again != first || !strings.Contains(first, `"request":`) {
		t.Errorf("the repetition is answered with %s instead of %s", again, first)
	}
	one.stop(t)
	two.stop(t)
}

func TestService(t *testing.T) {
	t.Parallel()
	p, url := serve(t, "service", nodes(t), queue(t), "GIN_MODE=release")
	if status, body := request(t, http.MethodGet, url+"/health"); status != http.StatusOK {
		t.Errorf("health: %d %s", status, body)
	}
	if status, body := request(t, http.MethodPost, url+"/orders/4%222/charges"); status != http.StatusOK { // order 4"2
		t.Errorf("a charge is answered with %d %s", status, body)
	}
	p.await(t, `INFO charged task="{\"order\":\"4\\\"2\"`)
	p.await(t, "INFO report written")
	if _, body := request(t, http.MethodGet, url+"/metrics"); !strings.Contains(body, "lockkit_acquire_duration_seconds_count") {
		t.Errorf("no metrics:\n%s", body)
	}
	p.stop(t)
}

// A request for a charge whose answer was lost is repeated. The repetition enqueues no second task.
func TestServiceChargesOnce(t *testing.T) {
	t.Parallel()
	queue := testutil.StartNode()
	t.Cleanup(queue.Close)
	var mu sync.Mutex
	tasks := map[string]bool{} // the tasks that were enqueued
	queue.OnRequest(func(args []string) (a testutil.Action) {
		mu.Lock()
		defer mu.Unlock()
		if strings.Contains(strings.Join(args, " "), `{"order":"42"`) {
			a.DropReply = args[0] == "EVAL" // only the first request, because it loads the script
			tasks[args[3]] = true
		}
		return a
	})

	addr, err := queue.Listen()
	if err != nil {
		t.Fatal(err)
	}
	p, url := serve(t, "service", nodes(t), "REDIS_URL=redis://"+addr, "GIN_MODE=release")
	testutil.Await(t, "an answer of 200", func() bool {
		status, body := request(t, http.MethodPost, url+"/orders/42/charges")
		t.Log(status, body)
		return status == http.StatusOK
	})
	p.await(t, "INFO charged task=")

	p.stop(t)
	mu.Lock()
	defer mu.Unlock()
	if len(tasks) != 1 {
		t.Errorf("%d tasks were enqueued: %v", len(tasks), tasks)
	}
}

// A service that cannot listen ends, after it has shut down the parts that it has started.
func TestServiceAddressTaken(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p := start(t, "service", nodes(t), queue(t), "GIN_MODE=release", "ADDR="+l.Addr().String())
	p.await(t, "INFO: Exiting") // from asynq
	p.await(t, "ERROR service failed err=\"listen tcp")
	if p.ended(t) == nil {
		t.Error("no error")
	}
}

// Each kind of work books its payment, and a repetition gets the receipt of the first request.
func TestOnce(t *testing.T) {
	t.Parallel()
	command := "once -sqlite " + filepath.Join(t.TempDir(), "payments.db")
	create := start(t, command+" -create")
	if err := create.ended(t); err != nil {
		t.Fatal(err)
	}

	p, url := serve(t, command, nodes(t), queue(t))
	status, receipt := request(t, http.MethodPost, url+"/orders/42/payments")
	if status != http.StatusOK || receipt == "" {
		t.Errorf("a payment is answered with %d %s", status, receipt)
	}
	if _, again := request(t, http.MethodPost, url+"/orders/42/payments"); again != receipt {
		t.Errorf("its repetition is answered with %s instead of %s", again, receipt)
	}
	if status, body := request(t, http.MethodPost, url+"/orders/43/payments/later"); status != http.StatusAccepted {
		t.Errorf("a task is answered with %d %s", status, body)
	}
	p.await(t, "INFO paid order=43 receipt=")
	p.await(t, "INFO paid order=fee-")
	p.stop(t)
}

func TestOtel(t *testing.T) {
	t.Parallel()
	p, url := serve(t, "otel", nodes(t))
	testutil.Await(t, "a lock that was measured", func() bool {
		_, body := request(t, http.MethodGet, url+"/metrics")
		return regexp.MustCompile(`lockkit_acquire_duration_seconds_count{[^}]*lockkit_name="settle"`).MatchString(body)
	})
	p.stop(t)
}

// queue starts a Redis for asynq, and returns the setting that names it to the examples.
func queue(t *testing.T) (env string) {
	t.Helper()
	n, err := testutil.StartNodes(1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	return "REDIS_URL=" + n.URLs()[0]
}

// nodes starts three nodes, declares them new, and returns the setting that names them to the examples.
func nodes(t *testing.T) (env string) {
	t.Helper()
	ns, err := testutil.StartNodes(3)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(ns.Close)
	locker, err := core.Open(ns.URLs())
	if err != nil {
		t.Fatal(err)
	}
	if err := newnodes.Declare(t.Context(), locker); err != nil {
		t.Error(err)
	}
	if err := locker.Close(t.Context()); err != nil {
		t.Error(err)
	}
	return "LOCKKIT_NODES=" + strings.Join(ns.URLs(), ",")
}

// programs is the directory of the programs that built has built.
var programs string

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "lockkit-minimal")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	programs = dir
	return m.Run()
}

// built has, by the name of an example, a function that builds it once, because several tests run it. It returns the path
// of the program.
var built = func() map[string]func() (exe string, err error) {
	all := map[string]func() (string, error){}
	for _, name := range examples {
		all[name] = sync.OnceValues(func() (string, error) {
			exe := filepath.Join(programs, name+".exe")
			build := exec.Command("go", "build", "-ldflags=-w", "-o", exe, ".")
			build.Dir = name // once is a module of its own
			if out, err := build.CombinedOutput(); err != nil {
				return "", fmt.Errorf("%w\n%s", err, out)
			}
			return exe, nil
		})
	}
	return all
}()

// A program is an example that runs.
type program struct {
	cmd   *exec.Cmd
	lines chan string // the lines that it prints
	done  chan error  // the error with which it ended
}

// start builds an example and runs it. The command is the name of the example and its arguments.
func start(t *testing.T, command string, env ...string) *program {
	t.Helper()
	args := strings.Fields(command)
	name := args[0]
	exe, err := built[name]()
	if err != nil {
		t.Fatal(err)
	}

	p := &program{exec.Command(exe, args[1:]...), make(chan string, 100), make(chan error, 1)}
	p.cmd.Env = append(os.Environ(), env...)

	r, w := io.Pipe()
	p.cmd.Stdout, p.cmd.Stderr = w, w
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.done <- p.cmd.Wait()
		w.Close()
	}()
	go func() {
		defer close(p.lines)
		for lines := bufio.NewScanner(r); lines.Scan(); {
			p.lines <- lines.Text()
		}
	}()

	t.Cleanup(func() {
		p.cmd.Process.Kill()
		for range p.lines { // until the program has ended
		}
	})
	return p
}

// await returns when the program has printed a line with the text.
func (p *program) await(t *testing.T, text string) {
	t.Helper()
	patience := time.After(5 * time.Minute)
	for {
		select {
		case line, ok := <-p.lines:
			if !ok {
				t.Fatalf("it ended without %q", text)
			}
			t.Log(line)
			if strings.Contains(line, text) {
				return
			}
		case <-patience:
			t.Fatalf("no %q", text)
		}
	}
}

// ended waits for the program to end by itself, and returns its error.
func (p *program) ended(t *testing.T) error {
	t.Helper()
	for line := range p.lines {
		t.Log(line)
	}
	return <-p.done
}

// stop makes the program shut down, as a deployment does.
func (p *program) stop(t *testing.T) {
	t.Helper()
	if runtime.GOOS == "windows" {
		return // Windows has no such signal
	}
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := p.ended(t); err != nil {
		t.Errorf("it did not shut down cleanly: %v", err)
	}
}

// serve starts a server at a free address. It returns the server's URL when the server accepts connections.
func serve(t *testing.T, command string, env ...string) (p *program, url string) {
	t.Helper()
	for range 5 { // another process may take the address first
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		addr := l.Addr().String()
		l.Close()
		p, answers := start(t, command, append(env, "ADDR="+addr)...), false
		testutil.Await(t, "a server", func() bool {
			c, err := net.Dial("tcp", addr)
			if err == nil {
				answers = true
				c.Close()
			}
			return answers || len(p.done) > 0
		})
		if len(p.done) == 0 {
			return p, "http://" + addr
		}
		p.ended(t)
	}
	t.Fatal("no address is free for it")
	return nil, ""
}

// request sends a request and returns its answer.
func request(t *testing.T, method, url string) (status int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Idempotency-Key", `"5f3e"`)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	read, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(read)
}
