package core

import (
	"context"
	"testing"
)

// wantWorkIs checks the identity of the work of ctx; "" stands for none.
func wantWorkIs(t *testing.T, ctx context.Context, want string) {
	t.Helper()
	got, ok := Work(ctx)
	if got != want || ok != (want != "") {
		t.Errorf("the work is %q (%v), want %q", got, ok, want)
	}
}

func mustDo(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// The identity has the key prefix and all parts. Leases of other keys leave it as it is.
func TestWorkStaysUnderOtherKeys(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		p := w.process(WithKeyPrefix("shop:"))
		wantWorkIs(t, t.Context(), "")
		ctx := p.WithWork(t.Context(), "payment", "42")
		wantWorkIs(t, ctx, "shop:{7:payment/2:42}")

		mustDo(t, p.Do(ctx, "a", func(ctx context.Context) error {
			wantWorkIs(t, ctx, "shop:{7:payment/2:42}")
			return p.Do(ctx, "b", func(ctx context.Context) error {
				wantWorkIs(t, ctx, "shop:{7:payment/2:42}")
				lease, _ := FromContext(ctx)
				if lease.Key() != "b" || lease.KeyPrefix() != "shop:" {
					t.Errorf("the lease is of %q, prefix %q", lease.Key(), lease.KeyPrefix())
				}
				wantWorkIs(t, p.WithWork(ctx, "mail", "42"), "shop:{4:mail/2:42}")
				wantWorkIs(t, p.WithWork(ctx), "")
				return nil
			})
		}))
	})
}

// A key under one prefix is other work than the key under another prefix that begins with the first one.
func TestWorkOfOverlappingPrefixes(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		short, long := w.process(WithKeyPrefix("app:")), w.process(WithKeyPrefix("app:v2:"))
		var works []string
		note := func(ctx context.Context) error {
			work, _ := Work(ctx)
			works = append(works, work)
			return nil
		}
		mustDo(t, short.Once(t.Context(), "v2:pay", note))
		mustDo(t, long.Once(t.Context(), "pay", note))
		if len(works) != 2 || works[0] == works[1] {
			t.Errorf("works %q", works)
		}
	})
}

// Once names the work by prefix and key, unless its caller has named it. Do does not.
func TestOnceNamesTheWork(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		p := w.process(WithKeyPrefix("shop:"))
		mustDo(t, p.Do(t.Context(), "k", func(ctx context.Context) error {
			wantWorkIs(t, ctx, "")
			return nil
		}))

		once := func(key, want string, outer context.Context) {
			mustDo(t, p.Once(outer, key, func(ctx context.Context) error {
				wantWorkIs(t, ctx, want)
				if lease, held := FromContext(ctx); !held || lease.Key() != key {
					t.Errorf("the lease of %q is not that of the context", key)
				}
				return nil
			}))
		}
		once("k", "shop:{k}", t.Context())
		once("l", "shop:{7:payment/2:42}", p.WithWork(t.Context(), "payment", "42"))

		_, err := p.OnceResult(t.Context(), "m", func(ctx context.Context) ([]byte, error) {
			wantWorkIs(t, ctx, "shop:{m}")
			mustDo(t, p.Once(ctx, "n", func(ctx context.Context) error {
				wantWorkIs(t, ctx, "shop:{m}")
				return nil
			}))
			return nil, nil
		})
		mustDo(t, err)
	})
}
