package pause

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		if !For(ctx, time.Second) || time.Since(began) != time.Second {
			t.Errorf("a pause of 1s ended after %v", time.Since(began))
		}
		time.AfterFunc(time.Second, cancel)
		if For(ctx, time.Minute) || time.Since(began) != 2*time.Second {
			t.Errorf("a pause that was cut short after 1s ended after %v", time.Since(began)-time.Second)
		}
	})
}
