//go:build !linux || !(amd64 || arm64)

package sim

import (
	"errors"
	"fmt"
	"os/exec"
	"time"
)

// runFixed returns an error. On other systems it runs a program that does the same each time.
func runFixed(*exec.Cmd, [16]byte, time.Duration) error {
	return errNotFixed{fmt.Errorf("%w: they need Linux on amd64 or arm64", errors.ErrUnsupported)}
}
