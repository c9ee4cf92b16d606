package main

import (
	"io"
	"net"
	"testing"
	"time"
)

// What is sent in pieces arrives in order, each after the delay, and closing the link ends connections.
func TestSlowLink(t *testing.T) {
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer echo.Close()
	go func() {
		c, err := echo.Accept()
		if err != nil {
			return // the test is over
		}
		defer c.Close()
		_, _ = io.Copy(c, c)
	}()
	const delay = 20 * time.Millisecond
	link, err := startSlowLink(echo.Addr().String(), delay)
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", link.addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	for _, piece := range []string{"one ", "two ", "three"} {
		if _, err := io.WriteString(c, piece); err != nil {
			t.Fatal(err)
		}
	}
	got := make([]byte, len("one two three"))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != "one two three" {
		t.Errorf("got %q, %v", got, err)
	}
	if took := time.Since(start); took < 2*delay {
		t.Errorf("there and back in %v, want at least %v", took, 2*delay)
	}
	if err := link.close(); err != nil {
		t.Error(err)
	}
	if _, err := c.Read(got); err == nil {
		t.Error("the connection outlived the link")
	}
}
