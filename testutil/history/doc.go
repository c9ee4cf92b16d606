// Package history records the results that a lock returned to its users, and
// decides afterwards whether a correct lock could have returned them. It depends
// on no lock: tests of any may use it. [github.com/lockkit/lockkit/testutil/locktest.Record]
// fills a history by observing a core.Locker.
package history
