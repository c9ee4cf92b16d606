package dbserver

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A server that is not installed is named.
func TestMissing(t *testing.T) {
	t.Parallel()
	_, err := find("no-such-server", filepath.Join(t.TempDir(), "*"))
	if !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "no-such-server") {
		t.Error(err)
	}
}

// The last version is found beside PATH.
func TestFindBesidePath(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, version := range []string{"15", "17"} {
		err := os.WriteFile(filepath.Join(dir, version), nil, 0o600)
		if err != nil {
			t.Fatal(err)
		}
	}
	path, err := find("no-such-server", filepath.Join(dir, "*"))
	if err != nil || filepath.Base(path) != "17" {
		t.Error(path, err)
	}
}
