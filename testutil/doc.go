// Package testutil has what tests and demos of code that locks need: embedded
// Redis masters whose faults are switches ([Node]), real redis-server
// processes ([Server]), also as a Redis Cluster ([Cluster]) and with a sentinel
// ([Sentinel]), the network of a single client as a hook of go-redis ([Link]), and
// a TCP proxy that damages connections ([Proxy]). Functions named New end what
// they start with the test; those named Start are for programs, which Close it.
//
// It knows nothing of package core. Two packages beside it do the rest:
//
//   - [github.com/lockkit/lockkit/testutil/locktest]: Lockers on embedded nodes,
//     leases that are lost when a test says so, observers. Start there to test
//     code that locks;
//   - [github.com/lockkit/lockkit/testutil/history]: decides whether a correct
//     lock could have returned what its users got.
//
// Embedded nodes need neither a network nor a redis-server, and work inside a
// testing/synctest bubble, where their clocks and expiries follow the bubble's
// clock. Use them first; use processes for what only the real server can show.
// Close a Locker before its bubble ends: until then it may have goroutines.
package testutil
