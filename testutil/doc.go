// Package testutil helps to test and demonstrate code that locks. It provides
//
//   - embedded Redis masters with faults that a test can switch on ([Node]);
//   - real redis-server processes ([Server]), which can form a Redis Cluster
//     ([Cluster]), or be watched by a Sentinel ([Sentinel]);
//   - a go-redis hook that simulates network faults of one client ([Link]);
//   - a TCP proxy that damages connections ([Proxy]).
//
// Functions named New… are for tests, and close what they start when the test
// ends. Functions named Start… are for programs, which must call Close.
//
// The package does not depend on package core. Two packages below it do the rest:
//
//   - [github.com/lockkit/lockkit/testutil/locktest]: Lockers on embedded nodes,
//     leases that are lost when a test says so, observers. Start there to test
//     code that locks;
//   - [github.com/lockkit/lockkit/testutil/history]: checks a recorded history
//     of calls: could a correct lock have given these results?
//
// Embedded nodes need neither a network nor a redis-server, and work inside a
// testing/synctest bubble, where their clocks and expiries follow the bubble's
// clock. Use them first. Use processes for behavior that only the real server
// has. Close a Locker before its bubble ends, because it may have goroutines
// until it is closed.
package testutil
