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
			addrs := []string{testutil.NewServers(t, 1)[0].Addr()}
			open := func() locker {
				l, err := p.open(ctx, addrs, ttl)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(l.close)
				return l
			}

			mine, theirs := open(), open()
			for range 2 { // an unlocked key can be locked again
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

func TestHolders(t *testing.T) {
	for _, p := range peers {
		if !p.renews {
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			on, err := startNodes(1, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := on.close(); err != nil {
					t.Error(err)
				}
			}()
			h, err := openHolder(ctx, p, on, leaseConfig{ttl: time.Minute})
			if err != nil {
				t.Fatal(err)
			}

			hs := make(holdings, 3)
			if errs := hs.take(ctx, h); errs != nil {
				t.Fatal(errs)
			}

			visitor, err := p.visit(on.addrs()[0], 1, time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			defer visitor.close()
			if keys, errs := taken(ctx, visitor, 4); len(keys) != 3 || errs != nil {
				t.Errorf("of 3 held keys, %v are taken, %v", keys, errs)
			}
			if lost := hs.lost(); lost != nil {
				t.Errorf("lost: %v", lost)
			}

			if errs := hs[:1].release(ctx); errs != nil {
				t.Error(errs)
			}
			if keys, errs := taken(ctx, visitor, 4); len(keys) != 2 || errs != nil {
				t.Errorf("of 2 held keys, %v are taken, %v", keys, errs)
			}
			if err := h.abandon(); err != nil {
				t.Error(err)
			}
		})
	}
}
