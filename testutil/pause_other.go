//go:build !unix

package testutil

import (
	"errors"
	"os"
)

// This platform cannot stop and continue processes.
func pauseProcess(*os.Process) error  { return errors.ErrUnsupported }
func resumeProcess(*os.Process) error { return errors.ErrUnsupported }
