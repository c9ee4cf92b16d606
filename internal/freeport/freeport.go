// Package freeport starts servers that cannot choose a free port.
package freeport

import (
	"fmt"
	"net"
)

// maxTries is how often Try calls start.
const maxTries = 10

// Try calls start with an address of 127.0.0.1 and a port that was free a moment ago, until start returns nil. Another
// process may take the port before the server does, so Try calls start with another port after an error. After ten
// errors, Try returns the last.
func Try(start func(addr string) error) error {
	var lastErr error
	for range maxTries {
		addr, err := freeAddr()
		if err != nil {
			return err
		}

		lastErr = start(addr)
		if lastErr == nil {
			return nil
		}
	}
	return lastErr
}

// freeAddr returns an address of 127.0.0.1 with a free port.
func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("no free port on 127.0.0.1: %w", err)
	}

	addr := l.Addr().String()
	return addr, l.Close()
}
