// Package history records what the users of a lock were told, and decides
// afterwards whether a correct lock could have told them so. It knows no lock:
// tests of any may use it. [github.com/lockkit/lockkit/testutil/locktest.Record]
// fills a history by observing a core.Locker.
package history
