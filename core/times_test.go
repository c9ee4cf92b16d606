package core

import (
	"math"
	"testing"
	"time"
)

// No time wraps around, whatever a node or a caller says.
func TestTimesSaturate(t *testing.T) {
	const centuries = 290 * 365 * 24 * time.Hour
	last := nodeMillis(maxNumber)
	if got := last.millis(); got != maxNumber {
		t.Errorf("%d ms are %d", maxNumber, got)
	}
	if got := last.since(0); got < centuries {
		t.Errorf("the last time of a node is in %v", got)
	}
	if got := nodeTime(0).since(last); got > -centuries {
		t.Errorf("and it was %v before", got)
	}
	if got := leads(math.MaxUint64>>1, 0); got < centuries {
		t.Errorf("the greatest token is %v ahead", got)
	}
}
