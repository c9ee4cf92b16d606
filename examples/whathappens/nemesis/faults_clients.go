package nemesis

import (
	"context"
	"errors"
	"time"
)

// eachClient does something to the clients of a strike.
func eachClient(t strike, do func(name string) error) (err error) {
	for _, name := range t.clients {
		err = errors.Join(err, do(name))
	}

	return err
}

func killClients(_ context.Context, s *stand, t strike) error {
	return eachClient(t, func(name string) error {
		_ = s.client(name).Kill() // that is how it ends
		return nil
	})
}

func restartClients(_ context.Context, s *stand, t strike) error {
	return eachClient(t, func(name string) error { return s.startClient(name, 0) })
}

func stopClients(_ context.Context, s *stand, t strike) error {
	return eachClient(t, func(name string) error { return s.client(name).Pause() })
}

func resumeClients(_ context.Context, s *stand, t strike) error {
	return eachClient(t, func(name string) error { return s.client(name).Resume() })
}

// skewClients kills processes, and starts them with clocks that are wrong.
func skewClients(ctx context.Context, s *stand, t strike) error {
	skew := on(t, 40*time.Millisecond, -40*time.Millisecond, 400*time.Millisecond, -400*time.Millisecond, time.Hour, -time.Hour)
	return errors.Join(killClients(ctx, s, t), eachClient(t, func(name string) error { return s.startClient(name, skew) }))
}

func unskewClients(ctx context.Context, s *stand, t strike) error {
	return errors.Join(killClients(ctx, s, t), restartClients(ctx, s, t))
}
