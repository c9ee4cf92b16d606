package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockkit/lockkit/internal/freeport"
)

// Every panel shows data while the example runs. The test starts a Prometheus server. "make dashboards" runs this test.
func TestNoPanelIsEmpty(t *testing.T) {
	if os.Getenv("LOCKKIT_PROMETHEUS") != "required" {
		t.Skip("needs a Prometheus server and a minute: make dashboards")
	}
	rules, err := filepath.Abs("../../otel/dashboards/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	p := startPrometheus(t, rules, map[string]string{"example": started(t)})
	uses := panelQueries(t)
	eventually(t, 10*time.Minute, func() (faults []string) {
		for _, u := range uses {
			if fault := p.fault(u); fault != "" {
				faults = append(faults, fault)
			}
		}
		return faults
	})
	if os.Getenv("LOCKKIT_CHARTS") != "" { // charts show at least a minute
		time.Sleep(time.Until(p.since.Add(time.Minute)))
	}
	p.draw(t, "example")
	if !t.Failed() {
		t.Logf("%d queries, none without data", len(uses))
	}
}

// A database is a Prometheus server that scrapes its targets once a second.
type database struct {
	url   string
	since time.Time
}

// startPrometheus starts a server with a file of rules, and with an address for each job.
func startPrometheus(t *testing.T, rules string, targets map[string]string) *database {
	t.Helper()
	binary, err := exec.LookPath("prometheus")
	if err != nil {
		t.Fatal("prometheus is not on PATH (apt-get install prometheus)")
	}
	dir := t.TempDir()
	config := filepath.Join(dir, "prometheus.yml")
	var text strings.Builder
	fmt.Fprintf(&text, "global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [%q]\nscrape_configs:\n", rules)
	for job, addr := range targets {
		fmt.Fprintf(&text, "- job_name: %q\n  static_configs: [{targets: [%q]}]\n", job, addr)
	}
	if err := os.WriteFile(config, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if said, err := os.ReadFile(log.Name()); t.Failed() && err == nil {
			t.Logf("prometheus said:\n%s", said)
		}
		log.Close()
	})

	began := time.Now()
	server, err := freeport.Start(t.Context(), func(addr string) *exec.Cmd {
		cmd := exec.Command(binary, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+addr)
		cmd.Stdout, cmd.Stderr = log, log
		return cmd
	}, isReady)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	return &database{"http://" + server.Addr, began}
}

// isReady reports whether a Prometheus server at addr answers queries.
func isReady(addr string) bool {
	resp, err := http.Get("http://" + addr + "/-/ready")
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// fault returns why a panel would be empty, or "" if any series has had a number since the start.
func (p *database) fault(u use) string {
	expr := strings.NewReplacer("$__rate_interval", "10s", "$__range", "60s", "$job", ".*", "$name", ".*").Replace(u.expr)
	n, err := p.values(expr, p.since)
	switch {
	case err != nil:
		return u.where + ": " + err.Error()
	case n == 0:
		return fmt.Sprintf("%s is empty: %s", u.where, expr)
	}
	return ""
}

// values returns how many numbers a query has had since then: in all series, once a second.
func (p *database) values(expr string, since time.Time) (n int, err error) {
	found, err := p.query(expr, since)
	for _, series := range found {
		for _, v := range series.Values {
			if v[1] != "NaN" {
				n++
			}
		}
	}
	return n, err
}

// A result is one series in the result of a query: times and numbers.
type result struct {
	Metric map[string]string
	Values [][2]any
}

// query returns the results of a query since then, once a second.
func (p *database) query(expr string, since time.Time) ([]result, error) {
	resp, err := http.PostForm(p.url+"/api/v1/query_range", url.Values{"query": {expr}, "step": {"1"},
		"start": {strconv.FormatInt(since.Unix(), 10)}, "end": {strconv.FormatInt(time.Now().Unix()+1, 10)}})
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var answer struct {
		Error string
		Data  struct{ Result []result }
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || answer.Error != "" {
		return nil, fmt.Errorf("%v %s in %s", err, answer.Error, expr)
	}
	return answer.Data.Result, nil
}
