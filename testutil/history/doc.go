// Package history records the results that a lock returned to its users, and
// decides afterwards whether a correct lock could have returned them. The
// package does not depend on a particular lock, so tests of any lock can use
// it. [github.com/lockkit/lockkit/testutil/locktest.Record] fills a history by
// observing a core.Locker.
package history
