// Package slot belongs to core and to core/semaphore. A semaphore of k on a key is k locks, its slots. The package names
// them ([Name]), remembers which of them this process uses ([Memory]), and lets core/semaphore acquire several of them in
// one operation of a Locker ([Begin]).
package slot
