package sim

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// A Patch changes a file of a module that a test is built with.
type Patch struct {
	Module string      // its path
	File   string      // the name of the file in the module
	Edits  [][2]string // texts that the file has once, and what replaces them
}

// build builds the test of the package in the working directory with p. It writes to dir, and returns the program of the
// test.
func (p Patch) build(dir string) (program string, err error) {
	source, err := goCommand("list", "-m", "-f", "{{.Dir}}", p.Module)
	if err != nil {
		return "", err
	}
	module := filepath.Join(dir, "module")
	if err := os.CopyFS(module, os.DirFS(source)); err != nil {
		return "", err
	}
	if err := p.apply(module); err != nil {
		return "", err
	}

	modFile, err := copyModFile(dir)
	if err != nil {
		return "", err
	}
	if _, err := goCommand("mod", "edit", "-replace", p.Module+"="+module, modFile); err != nil {
		return "", err
	}

	program = filepath.Join(dir, "patched.test")
	_, err = goCommand("test", "-c", "-vet=off", "-modfile="+modFile, "-o", program, ".")
	return program, err
}

// apply changes the file in the directory of the module.
func (p Patch) apply(module string) error {
	name := filepath.Join(module, p.File)
	content, err := os.ReadFile(name)
	if err != nil {
		return err
	}

	text := string(content)
	for _, edit := range p.Edits {
		if n := strings.Count(text, edit[0]); n != 1 {
			return fmt.Errorf("%s of %s has %q %d times instead of once", p.File, p.Module, edit[0], n)
		}
		text = strings.Replace(text, edit[0], edit[1], 1)
	}
	return os.WriteFile(name, []byte(text), 0o600)
}

// copyModFile copies the go.mod and the go.sum of the main module to dir. It returns the name of the new go.mod.
func copyModFile(dir string) (modFile string, err error) {
	mod, err := goCommand("env", "GOMOD")
	if err != nil {
		return "", err
	}

	for _, name := range []string{"go.mod", "go.sum"} {
		content, err := os.ReadFile(filepath.Join(filepath.Dir(mod), name))
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return "", err
		}
	}
	return filepath.Join(dir, "go.mod"), nil
}

// goCommand runs the go command, and returns its output without the newline at the end.
func goCommand(args ...string) (string, error) {
	cmd := exec.Command("go", args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	output, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%v: %w: %s", cmd, err, stderr.Bytes())
	}
	return strings.TrimSuffix(string(output), "\n"), nil
}
