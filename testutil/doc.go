// Package testutil has what tests and demos of code that locks need: embedded
// Redis masters whose faults are switches ([Node]), real redis-server
// processes ([Server]), also as a Redis Cluster ([Cluster]) and with a sentinel
// ([Sentinel]), a TCP proxy that damages connections ([Proxy]), and a checker
// for recorded histories.
//
// Embedded nodes need neither a network nor a redis-server, and work inside a
// testing/synctest bubble, where their clocks and expiries follow the bubble's
// clock. Use them first; use processes for what only the real server can show.
// Close a Locker before its bubble ends: until then it may have goroutines.
package testutil
