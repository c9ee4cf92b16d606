// Package freeport starts servers that cannot choose a port by themselves.
package freeport

import (
	"fmt"
	"net"
)

// tries is how often Try calls start.
const tries = 10

// Try calls start with an address of 127.0.0.1 whose port was free a moment ago, until start returns nil. Another process
// may take the port before the server does, so Try calls start with another port after an error. After ten errors, Try
// returns the last.
func Try(start func(addr string) error) (err error) {
	for range tries {
		l, listenErr := net.Listen("tcp", "127.0.0.1:0")
		if listenErr != nil {
			return fmt.Errorf("no free port on 127.0.0.1: %w", listenErr)
		}
		addr := l.Addr().String()
		if err := l.Close(); err != nil {
			return err
		}

		err = start(addr)
		if err == nil {
			return nil
		}
	}
	return err
}
