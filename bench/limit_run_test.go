package main

import (
	"context"
	"testing"
	"time"
)

// A limitLoad never has more holders than permits, on a real server.
func TestLimitLoad(t *testing.T) {
	onOne(t, func(ctx context.Context, on *nodes) {
		err := inProcesses(ctx, 2, 0, peer{name: lockkitOpen}, on, func(others []*process) error {
			load := limitLoad{callers: 5, hold: time.Millisecond, warm: 10 * time.Millisecond, measure: 200 * time.Millisecond}
			ways := limitWays{{"locks", load.plain("locks", 2)}, {"permits", load.limit("permits", 2)}}
			all, err := ways.inTurn(ctx, 1, others, on)
			if err != nil {
				return err
			}
			for _, way := range ways {
				if rounds := all[way.name]; len(rounds) != 1 || len(rounds[0].shares) != 5 {
					t.Errorf("%s: %+v", way.name, rounds)
				}
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}

func TestLimited(t *testing.T) {
	at := func(begun, granted, released time.Duration) Wait {
		return Wait{Begun: begun * time.Second, Granted: granted * time.Second, Released: released * time.Second}
	}
	measured := period{10 * time.Second, 20 * time.Second}
	got := limitedOf(measured, []LimitReply{
		{Requests: 12, LoopReply: LoopReply{Waits: [][]Wait{{at(5, 8, 12), at(13, 14, 18)}}}},
		{Requests: 6, LoopReply: LoopReply{Waits: [][]Wait{{at(5, 12, 14), at(14, 18, 25)}, {at(16, 0, 0)}}}},
	}, 2, 3)
	// Held within the period: 2 s and 4 s of the one process, 2 s and 2 s of the other, of 20 s.
	if got.rate != 0.3 || got.used != 0.5 || got.requests != 2 || got.most != 1 || len(got.shares) != 3 || got.shares[2] != 0 {
		t.Errorf("%+v", got)
	}

	if most := mostHolders([]Wait{at(0, 1, 3), at(0, 2, 4), at(0, 3, 5)}); most != 2 {
		t.Errorf("%d holders at once, want 2", most)
	}
}
