package testutil

// A bell wakes goroutines that wait for a change. The lock that guards the change guards the bell. The zero bell is ready
// to use.
type bell struct {
	rings chan struct{} // nil if nobody waits
}

// ring wakes all goroutines that wait.
func (b *bell) ring() {
	if b.rings != nil {
		close(b.rings)
		b.rings = nil
	}
}

// next returns a channel that is closed when the bell rings next.
func (b *bell) next() <-chan struct{} {
	if b.rings == nil {
		b.rings = make(chan struct{})
	}
	return b.rings
}
