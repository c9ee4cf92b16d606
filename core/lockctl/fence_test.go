package main

import (
	"testing"

	"github.com/lockkit/lockkit/core/fence"
)

// The command prints the schema of each dialect, and needs no nodes.
func TestFenceSchema(t *testing.T) {
	t.Parallel()
	for name, dialect := range map[string]fence.Dialect{
		"postgresql": fence.PostgreSQL, "mariadb": fence.MariaDB, "sqlite": fence.SQLite,
	} {
		got := ctl(t, nil, "fence-schema", name)
		if want := fence.New(dialect).Schema(); got.code != 0 || got.out != want || want == "" {
			t.Errorf("%s: %+v, want %s", name, got, want)
		}
	}
	for _, args := range [][]string{{}, {"mysql"}, {"sqlite", "mariadb"}, {""}} {
		got := ctl(t, nil, append([]string{"fence-schema"}, args...)...)
		if got.code != 2 || got.out != "" {
			t.Errorf("%q: %+v", args, got)
		}
	}
}
