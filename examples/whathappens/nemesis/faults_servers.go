package nemesis

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/testutil"
)

// command sends a command to the servers of a strike.
func (s *stand) command(ctx context.Context, t strike, args ...any) error {
	return eachNode(t, func(node int) error {
		return onServer(ctx, s.server(node), func(ctx context.Context, c *redis.Client) error { return c.Do(ctx, args...).Err() })
	})
}

func killServers(_ context.Context, s *stand, t strike) error {
	kill := func() error {
		return eachNode(t, func(node int) error { s.server(node).Kill(); return nil })
	}

	if s.persistence == persistAOF {
		return kill()
	}

	return s.forgetting(kill)
}

func restartServers(_ context.Context, s *stand, t strike) error {
	return eachNode(t, func(node int) error {
		if s.persistence == persistOff {
			return s.server(node).RestartEmpty() // a snapshot may be left of another fault
		}
		return s.server(node).Restart()
	})
}

func restartEmpty(_ context.Context, s *stand, t strike) error {
	return s.forgetting(func() error {
		return eachNode(t, func(node int) error { return s.server(node).RestartEmpty() })
	})
}

func stopServers(_ context.Context, s *stand, t strike) error {
	return eachNode(t, func(node int) error { return s.server(node).Pause() })
}

func resumeServers(_ context.Context, s *stand, t strike) error {
	return eachNode(t, func(node int) error { return s.server(node).Resume() })
}

func killConnections(ctx context.Context, s *stand, t strike) error {
	return s.command(ctx, t, "CLIENT", "KILL", "TYPE", on(t, "normal", "pubsub"))
}

func pauseCommands(ctx context.Context, s *stand, t strike) error {
	return s.command(ctx, t, "CLIENT", "PAUSE", t.length.Milliseconds(), on(t, "WRITE", "ALL"))
}

// A pause may be as long as its fault, and the command that ends it then waits for its end.
func resumeCommands(ctx context.Context, s *stand, t strike) error {
	return s.command(ctx, t, "CLIENT", "UNPAUSE")
}

func debugSleep(ctx context.Context, s *stand, t strike) error {
	return s.command(ctx, t, "DEBUG", "SLEEP", on(t, "0.3", "0.8", "2", "5"))
}

func flushScripts(ctx context.Context, s *stand, t strike) error {
	return s.command(ctx, t, "SCRIPT", "FLUSH")
}

func flushAll(ctx context.Context, s *stand, t strike) error {
	return s.forgetting(func() error { return s.command(ctx, t, "FLUSHALL") })
}

func noMemory(ctx context.Context, s *stand, t strike) error {
	return s.command(ctx, t, "CONFIG", "SET", "maxmemory", "1")
}

func memoryAgain(ctx context.Context, s *stand, t strike) error {
	return s.command(ctx, t, "CONFIG", "SET", "maxmemory", "0")
}

func noRights(ctx context.Context, s *stand, t strike) error {
	return s.command(ctx, t, "ACL", "SETUSER", "default", on(t, "-@scripting", "resetkeys", "resetchannels", "-@write"))
}

func rightsAgain(ctx context.Context, s *stand, t strike) error {
	return s.command(ctx, t, "ACL", "SETUSER", "default", "~*", "&*", "+@all")
}

// snapshotDir is where a server's files are kept, beside its directory.
const snapshotDir = ".snapshot"

// dirOf returns the directory of a server.
func dirOf(ctx context.Context, s *testutil.Server) (dir string, err error) {
	err = onServer(ctx, s, func(ctx context.Context, c *redis.Client) error {
		found, err := c.ConfigGet(ctx, "dir").Result()
		dir = found["dir"]
		return err
	})
	return dir, err
}

func takeSnapshot(ctx context.Context, s *stand, t strike) error {
	return eachNode(t, func(node int) error {
		dir, err := dirOf(ctx, s.server(node))
		if err != nil {
			return err
		}
		save := func(ctx context.Context, c *redis.Client) error { return c.Save(ctx).Err() }
		if err := onServer(ctx, s.server(node), save); err != nil {
			return err
		}
		return errors.Join(os.RemoveAll(dir+snapshotDir), copyFiles(dir+snapshotDir, dir))
	})
}

// restoreSnapshot restarts servers with the files that they had when the fault began.
func restoreSnapshot(ctx context.Context, s *stand, t strike) error {
	return s.forgetting(func() error {
		return eachNode(t, func(node int) error { return restore(ctx, s.server(node)) })
	})
}

func restore(ctx context.Context, s *testutil.Server) error {
	dir, err := dirOf(ctx, s)
	if err != nil {
		return err
	}

	s.Kill()

	for _, file := range persistedFiles {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, file)))
	}

	return errors.Join(err, copyFiles(dir, dir+snapshotDir), os.RemoveAll(dir+snapshotDir), s.Restart())
}

// persistedFiles are the files that a server reads when it starts.
var persistedFiles = []string{"dump.rdb", "appendonlydir"}

// copyFiles copies the persisted files of a server.
func copyFiles(to, from string) error {
	for _, file := range persistedFiles {
		info, err := os.Stat(filepath.Join(from, file))
		switch {
		case errors.Is(err, os.ErrNotExist):
		case err != nil:
			return err
		case info.IsDir():
			if err := os.CopyFS(filepath.Join(to, file), os.DirFS(filepath.Join(from, file))); err != nil {
				return err
			}
		default:
			data, err := os.ReadFile(filepath.Join(from, file))
			if err == nil {
				err = os.MkdirAll(to, 0o700)
			}
			if err == nil {
				err = os.WriteFile(filepath.Join(to, file), data, 0o600)
			}
			if err != nil {
				return err
			}
		}
	}

	return nil
}

// replica starts a replica of a node.
func (s *stand) replica(ctx context.Context, node int) (*testutil.Server, error) {
	server, err := s.startServer()
	if err != nil {
		return nil, err
	}

	if err := Replicate(ctx, server, s.server(node)); err != nil {
		server.Close()
		return nil, err
	}

	return server, nil
}

// promote kills a server, and a replica takes its place.
func promote(ctx context.Context, s *stand, t strike) error {
	node := t.nodes[0]
	promoted, err := s.replica(ctx, node)
	if err != nil {
		return err
	}

	return s.forgetting(func() error {
		s.server(node).Kill()
		s.replaceServer(node, promoted)
		return Replicate(ctx, promoted, nil)
	})
}

// moveName makes a node's name lead to a replica that is promoted. The server that was the node becomes its replica, and
// forgets its last writes.
func moveName(ctx context.Context, s *stand, t strike) error {
	node := t.nodes[0]
	promoted, err := s.replica(ctx, node)
	if err != nil {
		return err
	}

	return s.forgetting(func() error {
		old := s.server(node)
		s.replaceServer(node, promoted)
		if err := Replicate(ctx, promoted, nil); err != nil {
			return err
		}
		return Replicate(ctx, old, promoted)
	})
}

// retireOld ends the server that was the node before.
func retireOld(_ context.Context, s *stand, _ strike) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	for _, old := range s.retired {
		old.Close()
	}

	s.retired = nil
	return nil
}

func moveClocks(_ context.Context, s *stand, t strike) error {
	ahead := on(t, 300*time.Millisecond, -300*time.Millisecond, 2*time.Second, -2*time.Second, time.Hour, -time.Hour)
	return eachNode(t, func(node int) error { return s.clocks.move(s.server(node).Addr(), ahead) })
}

func setClocks(_ context.Context, s *stand, t strike) error {
	return eachNode(t, func(node int) error { return s.clocks.move(s.server(node).Addr(), 0) })
}
