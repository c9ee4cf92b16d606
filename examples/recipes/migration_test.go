package recipes

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/testutil"
	"github.com/lockkit/lockkit/testutil/locktest"
)

// Ten replicas that start together migrate once, and none goes on before that. A replica that fails lets the next one
// try. A deploy of the same version after that migrates nothing, and one of another version migrates again.
func TestMigrateOncePerDeploy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := locktest.New(t)
		var mu sync.Mutex
		tries, migrated := 0, false
		errDatabase := errors.New("the database is away")

		migrate := func(context.Context) error {
			mu.Lock()
			tries++
			failed := tries == 1
			mu.Unlock()
			if failed {
				return errDatabase
			}

			time.Sleep(time.Minute) // longer than the TTL
			mu.Lock()
			migrated = true
			mu.Unlock()
			return nil
		}
		deploy := func(version string) (failures int) {
			var replicas sync.WaitGroup
			for range 10 {
				locker := l.Replica().Locker
				replicas.Go(func() {
					err := Migrate(t.Context(), locker, version, migrate)
					mu.Lock()
					defer mu.Unlock()
					switch {
					case errors.Is(err, errDatabase):
						failures++
					case err != nil:
						t.Error(err)
					case !migrated:
						t.Error("a replica went on before the migration")
					}
				})
			}
			replicas.Wait()
			return failures
		}

		if failures := deploy("v1"); failures != 1 || tries != 2 {
			t.Errorf("%d replicas failed, %d tries", failures, tries)
		}
		if deploy("v1"); tries != 2 {
			t.Errorf("the same version: %d tries", tries)
		}
		if deploy("v2"); tries != 3 {
			t.Errorf("the next version: %d tries", tries)
		}
	})
}

// The record of a migration is on all three nodes. If one of them loses it, the migration does not run again, whichever
// node is down then. If two lose it, and the third one is down, it does.
func TestMigrationAfterLossesOfNodes(t *testing.T) {
	for lost, want := range map[int]int{1: 1, 2: 2} {
		synctest.Test(t, func(t *testing.T) {
			nodes := testutil.NewNodes(t, 3)
			l := locktest.NewOn(t, nodes)
			runs := 0
			migrate := func(context.Context) error {
				runs++
				time.Sleep(time.Second) // meanwhile, the third node has granted the key, too
				return nil
			}
			deploy := func() {
				t.Helper()
				if err := Migrate(t.Context(), l.Replica().Locker, "v1", migrate); err != nil {
					t.Error(err)
				}
			}

			deploy()
			time.Sleep(time.Minute) // all nodes have the record
			for _, n := range nodes[:lost] {
				n.RestartEmpty()
			}
			time.Sleep(time.Minute) // they vote again
			nodes[2].Down()
			deploy()
			if runs != want {
				t.Errorf("after the loss of %d nodes: %d runs, want %d", lost, runs, want)
			}
		})
	}
}

// A single node without persistence forgets the record when it restarts.
func TestMigrationAfterTheLossOfTheOnlyNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := testutil.NewNodes(t, 1)[0]
		locker, err := core.New(testutil.Clients([]*testutil.Node{node}))
		if err != nil {
			t.Fatal(err)
		}
		defer locker.Close(t.Context())

		runs := 0
		for range 2 {
			if err := Migrate(t.Context(), locker, "v1", func(context.Context) error { runs++; return nil }); err != nil {
				t.Error(err)
			}
			node.RestartEmpty()
			time.Sleep(time.Minute)
		}
		if runs != 2 {
			t.Errorf("%d runs", runs)
		}
	})
}
