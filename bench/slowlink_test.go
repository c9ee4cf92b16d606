package main

import (
	"io"
	"net"
	"testing"
	"time"
)

const testDelay = 20 * time.Millisecond

// echoLink starts a server that sends back what it receives, and a link to it. ended reports each connection of the
// server that ends.
func echoLink(t *testing.T) (link *slowLink, ended <-chan struct{}) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	ends := make(chan struct{}, 1)
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return // the test is over
			}
			_, _ = io.Copy(c, c)
			_ = c.Close()
			ends <- struct{}{}
		}
	}()
	link, err = startSlowLink(listener.Addr().String(), testDelay)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = link.close() })
	return link, ends
}

func dial(t *testing.T, link *slowLink) net.Conn {
	c, err := net.Dial("tcp", link.addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return c
}

// echo sends pieces, waits until all of them are back, and returns how long that took.
func echo(t *testing.T, c net.Conn) (took time.Duration) {
	start := time.Now()
	for _, piece := range []string{"one ", "two ", "three"} {
		if _, err := io.WriteString(c, piece); err != nil {
			t.Fatal(err)
		}
	}
	got := make([]byte, len("one two three"))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != "one two three" {
		t.Fatalf("got %q, %v", got, err)
	}
	return time.Since(start)
}

func TestSlowLinkDelaysAndKeepsOrder(t *testing.T) {
	link, ended := echoLink(t)
	c := dial(t, link)
	if took := echo(t, c); took < 2*testDelay {
		t.Errorf("there and back in %v, want at least %v", took, 2*testDelay)
	}
	_ = c.Close()
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		t.Error("the server does not see that the client hung up")
	}
}

func TestSlowLinkCloses(t *testing.T) {
	link, _ := echoLink(t)
	c := dial(t, link)
	echo(t, c)
	if err := link.close(); err != nil {
		t.Error(err)
	}
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("a connection outlived the link")
	}
	if n := link.running.Load(); n != 0 {
		t.Errorf("%d goroutines outlived the link", n)
	}
}
