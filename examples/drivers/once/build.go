package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// The change that books without a record. withoutRecord has the signature of fence.Store.Do.
const (
	withRecord = "s.store.Do(ctx, s.db, func("
	broken     = "withoutRecord(ctx, s.db, func("
	brokenFunc = `
func withoutRecord(ctx context.Context, db *sql.DB, fn func(ctx context.Context, tx *sql.Tx) ([]byte, error)) ([]byte, error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer tx.Rollback()
	receipt, err := fn(ctx, tx)
	if err != nil {
		return nil, err
	}
	return receipt, tx.Commit()
}
`
)

// build builds examples/minimal/once in dir, and returns the path of the program. It builds it as users copy it, unless
// breaks is true: then payments are booked without a record.
func build(ctx context.Context, dir string, breaks bool) (exe string, err error) {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/lockkit/lockkit").Output()
	if err != nil {
		return "", fmt.Errorf("go list: %w", err)
	}

	module := filepath.Join(strings.TrimSpace(string(root)), "examples", "minimal", "once")
	exe = filepath.Join(dir, "once.exe")
	args := []string{"build", "-C", module, "-o", exe, "-ldflags=-w"}
	if breaks {
		overlay, err := breakCopy(dir, filepath.Join(module, "main.go"))
		if err != nil {
			return "", err
		}
		args = append(args, "-overlay", overlay)
	}

	said, err := exec.CommandContext(ctx, "go", append(args, ".")...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go build: %w: %s", err, said)
	}
	return exe, nil
}

// breakCopy writes a changed copy of the file into dir, and returns the overlay that makes go build read it.
func breakCopy(dir, file string) (overlay string, err error) {
	source, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	if strings.Count(string(source), withRecord) != 1 {
		return "", fmt.Errorf("%s does not have %q once", file, withRecord)
	}

	changed := filepath.Join(dir, "broken.go")
	err = os.WriteFile(changed, []byte(strings.Replace(string(source), withRecord, broken, 1)+brokenFunc), 0o600)
	if err != nil {
		return "", err
	}

	replace, err := json.Marshal(map[string]map[string]string{"Replace": {file: changed}})
	if err != nil {
		return "", err
	}
	overlay = filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, replace, 0o600)
}
