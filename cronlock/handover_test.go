package cronlock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/leader"
	"github.com/lockkit/lockkit/internal/race"
)

// A leader whose Service is closed keeps the leadership while its term has other work: work that has called Enter, or a
// slow OnElected. The context of such work stays live. When the work has ended, another process leads at once, even
// though the run of the job goes on.
func TestOtherWorkKeepsTheTermOfAServiceThatCloses(t *testing.T) {
	race.SkipSweep(t)
	const work = 15 * time.Second // longer than a TTL

	cases := map[string]func(t *testing.T, c *candidate, elected chan struct{}) (leave func()){
		"Enter": func(t *testing.T, c *candidate, elected chan struct{}) func() {
			close(elected)
			ctx, leave, err := c.elector.Enter(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return func() {
				if ctx.Err() != nil {
					t.Errorf("the work was told to stop: %v", context.Cause(ctx))
				}
				leave()
			}
		},
		"OnElected": func(_ *testing.T, _ *candidate, elected chan struct{}) func() {
			return func() { close(elected) }
		},
	}

	for name, enter := range cases {
		bubbleOf(t, name, 30*time.Second, func(t *testing.T, w *world) {
			elected := make(chan struct{}) // closed when the first OnElected may return
			all := []*candidate{
				w.candidateWith(leader.OnElected(func(context.Context, leader.Term) { <-elected })),
			}
			time.Sleep(time.Second)
			all = append(all, w.candidateWith())

			running := make(chan error, 1)
			for _, c := range all {
				c.add(t, "long", At(at(time.Minute)), func(ctx context.Context) error {
					err := hold(2 * time.Minute)(ctx)
					running <- err
					return err
				})
			}

			till(time.Minute + 5*time.Second)
			old, next := all[0], all[1]
			leave := enter(t, old, elected)

			closed := make(chan error, 1)
			go func() { closed <- old.Close(t.Context()) }()
			for range int(work / time.Second) {
				time.Sleep(time.Second)
				if err := next.elector.IsLeader(t.Context()); !errors.Is(err, leader.ErrNotLeader) {
					t.Fatalf("another process leads beside work of the term, at %v", time.Now())
				}
			}
			leave()
			time.Sleep(time.Second)
			if err := next.elector.IsLeader(t.Context()); err != nil {
				t.Errorf("a second after the work has left the term: %v", err)
			}

			select {
			case err := <-running:
				t.Errorf("the run of the job has ended: %v", err)
			case err := <-closed:
				t.Errorf("Close has not waited for the run: %v", err)
			default:
			}
			if err := <-closed; err != nil {
				t.Errorf("Close: %v", err)
			}
			if err := <-running; err != nil {
				t.Errorf("the run: %v", err)
			}
		})
	}
}
