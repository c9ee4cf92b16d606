//go:build !stalls || !linux

package stall

// Enabled reports whether this build stalls.
const Enabled = false

// At stops the thread at a point, in builds that stall. The number of stalls is limited per owner.
func At[T any](p Point, node int, owner *T) {}
