package main

import (
	"slices"
	"strings"
	"testing"
	"time"
)

const document = "../../../docs/what-happens.md"

func readDocument(t *testing.T) []pageRow {
	t.Helper()
	page, err := readPage(document)
	if err != nil {
		t.Fatal(err)
	}
	return page
}

// Each row of the document is judged or names a test. Each sentence of a judged row is judged.
func TestDocumentIsJudged(t *testing.T) {
	t.Parallel()
	page := readDocument(t)
	plans, err := match(page, rows(scenes))
	if err != nil {
		t.Error(err)
	}
	judged := len(slices.DeleteFunc(slices.Clone(plans), func(p plan) bool { return p.row == nil }))
	if len(plans) < 30 || judged < 20 {
		t.Errorf("%d of %d rows are judged", judged, len(plans))
	}
}

// A row or a sentence that is added to the document is reported until it is judged. A removed one is reported as well.
func TestChangesOfTheDocumentAreFound(t *testing.T) {
	t.Parallel()
	change := func(do func(page []pageRow) []pageRow) string {
		t.Helper()
		_, err := match(do(readDocument(t)), rows(scenes))
		if err == nil {
			t.Fatal("no error")
		}
		return err.Error()
	}
	find := func(page []pageRow, what string) *pageRow {
		i := slices.IndexFunc(page, func(p pageRow) bool { return strings.HasPrefix(p.what, what) })
		if i < 0 {
			t.Fatalf("no row %s", what)
		}
		return &page[i]
	}

	for name, test := range map[string]struct {
		change func(page []pageRow) []pageRow
		says   string
	}{
		"a row without a test": {func(page []pageRow) []pageRow {
			return append(page, pageRow{"**Lightning strikes**", "Notices nothing.", "Notices nothing.", "experience"})
		}, "Lightning strikes"},
		"a sentence": {func(page []pageRow) []pageRow {
			find(page, "**A holder is killed**").callers += " The phone rings."
			return page
		}, "The phone rings."},
		"a promise is gone": {func(page []pageRow) []pageRow {
			row := find(page, "**A holder is killed**")
			row.callers = strings.ReplaceAll(row.callers, "Other keys are not affected.", "")
			return page
		}, "Other keys are not affected"},
		"a row is gone": {func(page []pageRow) []pageRow {
			return slices.DeleteFunc(page, func(p pageRow) bool { return strings.HasPrefix(p.what, "**A holder is killed**") })
		}, "A holder is killed"},
	} {
		if got := change(test.change); !strings.Contains(got, test.says) {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// A row that another test shows needs only the name of that test.
func TestRowWithATest(t *testing.T) {
	t.Parallel()
	page := append(readDocument(t), pageRow{"**Lightning strikes**", "Notices nothing.", "Notices nothing.", "`TestLightning` in core"})
	plans, err := match(page, rows(scenes))
	if err != nil {
		t.Fatal(err)
	}
	table := newTable(plans)
	var out strings.Builder
	table.print(&out)
	if !strings.Contains(out.String(), "| **Lightning strikes** | – | – | not for three servers: `TestLightning` in core |") {
		t.Error(out.String())
	}
}

func TestFigures(t *testing.T) {
	t.Parallel()
	passage, f, err := find("The next waiter has the key 6 to 10.5 s after the pause began.", "key # to # s after")
	if err != nil || passage != "key 6 to 10.5 s after" || !slices.Equal(f, figures{6 * time.Second, 10500 * time.Millisecond}) {
		t.Errorf("%q %v %v", passage, f, err)
	}
	// A # in a link is not a figure.
	if _, f, err := find("see [here](recipes.md#once) within 11 s", "[here](recipes.md#once) within # s"); err != nil || len(f) != 1 {
		t.Errorf("%v %v", f, err)
	}
}
