package core

import (
	"context"
	"net"
	"testing"
)

// Dial asks no name server either, which go-redis does by itself for notices of maintenance.
func TestDialResolvesNothing(t *testing.T) {
	system := net.DefaultResolver
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		t.Error("a name is looked up")
		return nil, net.ErrClosed
	}}
	t.Cleanup(func() { net.DefaultResolver = system })
	clients, err := Dial([]string{"redis://nowhere.example:6379", "rediss://nowhere.example:6379"})
	if err != nil {
		t.Fatal(err)
	}
	if err := closeClients(clients); err != nil {
		t.Error(err)
	}
}
