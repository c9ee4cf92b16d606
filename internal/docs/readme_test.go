package docs

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// cells returns the cells of a line of a table.
func cells(row string) (texts []string) {
	for cell := range strings.SplitSeq(strings.Trim(strings.TrimSpace(row), "|"), "|") {
		texts = append(texts, strings.TrimSpace(cell))
	}
	return texts
}

// A row is a row of a table in a document, with the names of the columns and the heading above the table.
type row struct {
	heading string
	columns []string
	cells   []string
}

// cell returns the cell of a row in a column, or "" if the table has no such column.
func (r row) cell(column string) string {
	for i, name := range r.columns {
		if name == column && i < len(r.cells) {
			return r.cells[i]
		}
	}
	return ""
}

// rows returns the rows of all tables of a document.
func rows(document string) (all []row) {
	var current row
	for line := range strings.Lines(document) {
		switch {
		case strings.HasPrefix(line, "#"):
			current = row{heading: strings.TrimSpace(strings.TrimLeft(line, "# "))}
		case !strings.HasPrefix(line, "|"):
			current.columns = nil
		case current.columns == nil:
			current.columns = cells(line)
		case !strings.HasPrefix(line, "|-") && !strings.HasPrefix(line, "| -"):
			current.cells = cells(line)
			all = append(all, current)
		}
	}
	return all
}

// figure returns the figure of docs/benchmarks.md for a peer, or "" if it has none.
func figure(benchmarks []row, wanted func(row) bool, column, peer string) string {
	if peer == "lockkit" {
		peer = "lockkit, Open"
	}
	for _, r := range benchmarks {
		if wanted(r) && r.cell("peer") == peer {
			return r.cell(column)
		}
	}
	return ""
}

// The README's comparison has the figures of docs/benchmarks.md, or a dash if there is none.
func TestComparison(t *testing.T) {
	t.Parallel()
	benchmarks := rows(text(t, "../../docs/benchmarks.md"))
	pairs := regexp.MustCompile(`^lock and unlock per second, (\d nodes?), (1|128) callers?$`)
	compared := 0
	for _, r := range rows(text(t, "../../README.md")) {
		if len(r.columns) < 2 || r.columns[1] != "lockkit" {
			continue
		}
		var wanted func(row) bool
		column := "pairs/s"
		if found := pairs.FindStringSubmatch(r.cells[0]); found != nil {
			wanted = func(b row) bool { return b.heading == found[1] && b.cell("goroutines") == found[2] }
		} else if strings.Contains(r.cells[0], "Jain") {
			column = "Jain"
			wanted = func(b row) bool { return b.heading == "Greedy clients" && b.cell("nodes") == "1" }
		} else {
			continue
		}

		for i, peer := range r.columns[1:] {
			want := figure(benchmarks, wanted, column, peer)
			if want == "" {
				want = "–"
			}
			compared++
			if r.cells[i+1] != want {
				t.Errorf("README.md: %s, %s: %s, but docs/benchmarks.md has %s", r.cells[0], peer, r.cells[i+1], want)
			}
		}
	}

	if compared != 25 {
		t.Errorf("compared %d figures", compared)
	}
}

// The README has the same versions as go.mod, the manual and the code.
func TestVersions(t *testing.T) {
	t.Parallel()
	if os.Getenv("LOCKKIT_LIBRARIES") == "newest" {
		t.Skip("make newest has changed go.mod")
	}
	readme, mod := text(t, "../../README.md"), text(t, "../../go.mod")
	for name, module := range map[string]string{
		"go-redis":      "github.com/redis/go-redis/v9",
		"gocron":        "github.com/go-co-op/gocron/v2",
		"asynq":         "github.com/hibiken/asynq",
		"gin":           "github.com/gin-gonic/gin",
		"OpenTelemetry": "go.opentelemetry.io/otel",
	} {
		found := regexp.MustCompile(`(?m)^\t` + regexp.QuoteMeta(module) + ` (v\S+)$`).FindStringSubmatch(mod)
		if found == nil {
			t.Errorf("go.mod has no %s", module)
		} else if !strings.Contains(readme, "| "+name+" | "+found[1]+" or later") {
			t.Errorf("README.md does not say that %s is %s or later", name, found[1])
		}
	}

	language := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(mod)[1]
	for file, words := range map[string]string{
		"../../README.md":                  "| Go | " + language + " |",
		"../../docs/badges/go.svg":         "Go: " + language,
		"../../docs/badges/redis.svg":      "Redis: 6.2.7",
		"../../core/internal/node/info.go": "6.2.7",
		"../../docs/badges/licence.svg":    "Apache 2.0",
		"../../LICENSE":                    "Version 2.0",
	} {
		if !strings.Contains(text(t, file), words) {
			t.Errorf("%s does not say %q", file, words)
		}
	}

	tested := ""
	for _, r := range rows(text(t, "../../docs/operations.md")) {
		if r.heading == "Versions" && r.cell("result") == "passed" {
			tested += r.cell("server") + "; "
		}
	}
	tested = strings.TrimSuffix(tested, "; ")
	if tested == "" || !strings.Contains(readme, "| servers, tested | "+tested+" |") {
		t.Errorf("README.md does not name the servers of the manual: %s", tested)
	}
}
