package wire

import "time"

// A Head is what all requests of a Locker say of it. It does not change; to learn of a longer TTL makes another.
type Head struct {
	MaxTTL time.Duration // the longest lease in use, as far as is known

	window, maxTTL, lag, idle int64 // ms
}

// NewHead is that of a Locker with these settings.
func NewHead(window, maxTTL, lag time.Duration) *Head {
	h := &Head{window: window.Milliseconds(), lag: lag.Milliseconds()}
	h.know(maxTTL)
	return h
}

// WithMaxTTL is h where a longer lease is in use.
func (h *Head) WithMaxTTL(d time.Duration) *Head {
	longer := *h
	longer.know(d)
	return &longer
}

// know sets the longest lease, and with it for how long Redis keeps an idle fencing counter: tokens may be ahead of a node's
// clock by a part of the longest lease.
func (h *Head) know(maxTTL time.Duration) {
	h.MaxTTL, h.maxTTL, h.idle = maxTTL, maxTTL.Milliseconds(), (max(IdleFence, maxTTL) + ClockJump).Milliseconds()
}
