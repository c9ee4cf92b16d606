package nemesis

import (
	"encoding/binary"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// clocks moves the wall clocks of servers. They have testdata/clock.c preloaded, which reads a file: 8 bytes for each port.
type clocks struct {
	file *os.File // nil: the clocks stay
}

const ports = 1 << 16

// openClocks makes the servers that are started from now on have clocks that can be moved.
func openClocks(shim string) (*clocks, error) {
	if shim == "" {
		return &clocks{}, nil
	}

	shim, err := filepath.Abs(shim)
	if err != nil {
		return nil, err
	}

	f, err := os.CreateTemp("", "nemesis-clocks-*")
	if err != nil {
		return nil, err
	}

	return &clocks{f}, errors.Join(f.Truncate(8*ports), os.Setenv("LOCKKIT_CLOCKS", f.Name()), os.Setenv("LD_PRELOAD", shim))
}

func (c *clocks) movable() bool { return c.file != nil }

// move sets the clock of a server ahead of the machine's.
func (c *clocks) move(addr string, ahead time.Duration) error {
	_, text, err := net.SplitHostPort(addr)
	if err != nil {
		return err
	}

	port, err := strconv.Atoi(text)
	if err != nil {
		return err
	}

	var bytes [8]byte
	binary.NativeEndian.PutUint64(bytes[:], uint64(ahead))
	_, err = c.file.WriteAt(bytes[:], int64(8*port))
	return err
}

func (c *clocks) close() {
	if c.file == nil {
		return
	}

	os.Unsetenv("LD_PRELOAD")
	c.file.Close()
	os.Remove(c.file.Name())
}
