//go:build !stalls || !linux

package stall

// Enabled reports whether this build has stalls.
const Enabled = false

// At stops the thread at a point, in builds with stalls. The owner is what bounds the number of stalls.
func At[T any](p Point, node int, owner *T) {}
