package main

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockkit/lockkit/testutil"
)

func TestPeers(t *testing.T) {
	for _, p := range append(peers, redsyncFailFast) {
		t.Run(p.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			addrs := []string{testutil.Redis(t, 1)[0].Addr()}
			open := func() locker {
				l, err := p.open(ctx, addrs, ttl)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(l.close)
				return l
			}
			mine, theirs := open(), open()
			for range 2 { // what is unlocked can be locked again
				unlock, err := mine.lock(ctx, "key")
				if err != nil {
					t.Fatal(err)
				}
				if _, err := theirs.tryLock(ctx, "key"); !errors.Is(err, errHeld) {
					t.Errorf("somebody else, who tries a held key: %v, want errHeld", err)
				}
				if err := unlock(ctx); err != nil {
					t.Errorf("unlock: %v", err)
				}
			}
			unlock, err := theirs.tryLock(ctx, "key")
			if err != nil {
				t.Fatalf("trying a free key: %v", err)
			}
			if err := unlock(ctx); err != nil {
				t.Errorf("unlock: %v", err)
			}
		})
	}
}
