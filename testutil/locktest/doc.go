// Package locktest helps you test code that runs under leases of package core.
// It has a [Locker] on embedded nodes. [Locker.Replica] adds another Locker on the
// same nodes, which stands for another process of your service. A test can take a
// lease away, or cut one Locker off from the nodes. Observers count events, wait
// for one, or record a history.
//
// This test shows how a handler behaves when it loses its lease:
//
//	func TestHandlerStops(t *testing.T) {
//		synctest.Test(t, func(t *testing.T) {
//			l := locktest.New(t)
//			err := l.Do(t.Context(), "report", func(ctx context.Context) error {
//				go l.Lose(ctx)
//				return writeReport(ctx) // must return when ctx ends
//			})
//			if !errors.Is(err, core.ErrLost) {
//				t.Errorf("the report was finished without the lease: %v", err)
//			}
//		})
//	}
//
// Everything works inside a testing/synctest bubble, in which waiting takes no
// time, and outside of one. Faults of nodes are methods of [testutil.Node]. Faults
// of one process's network are methods of [testutil.Link].
package locktest

import "github.com/lockkit/lockkit/testutil" // for the links above

var _ *testutil.Link
