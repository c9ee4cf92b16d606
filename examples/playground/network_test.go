package main

import (
	"io"
	"net"
	"slices"
	"testing"
	"time"
)

// A connection that was cut off is reset when the cut ends, because it may have lost data.
func TestMendResets(t *testing.T) {
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer echo.Close()
	go func() {
		for {
			c, err := echo.Accept()
			if err != nil {
				return
			}
			go func() { io.Copy(c, c); c.Close() }()
		}
	}()

	n, err := newNetwork(replicaNames, slices.Repeat([]string{echo.Addr().String()}, nodeCount))
	if err != nil {
		t.Fatal(err)
	}
	defer n.close()

	c, err := net.Dial("tcp", n.proxies["b"][2].Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	said := make([]byte, 1)
	say := func() error {
		c.SetDeadline(time.Now().Add(10 * time.Second))
		if _, err := c.Write([]byte("x")); err != nil {
			return err
		}
		_, err := io.ReadFull(c, said)
		return err
	}
	if err := say(); err != nil {
		t.Fatal(err)
	}

	if err := n.cutOff(2, "b"); err != nil {
		t.Fatal(err)
	}
	if err := n.cutOff(2, "b"); err == nil {
		t.Error("it is cut off twice")
	}
	if got := n.state(2) + n.state(3); got != "cut" {
		t.Errorf("states %q", got)
	}

	if err := n.mend(2); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, said); err == nil || isTimeout(err) {
		t.Errorf("mended: %v, want a reset", err)
	}
	if err := n.mend(2); err == nil {
		t.Error("it is mended twice")
	}
}

func isTimeout(err error) bool {
	timeout, ok := err.(net.Error)
	return ok && timeout.Timeout()
}
