package wire

import (
	"math"
	"testing"
	"time"
)

// No time wraps around, whatever a node or a caller says.
func TestTimesSaturate(t *testing.T) {
	const centuries = 290 * 365 * 24 * time.Hour
	last := NodeMillis(maxNumber)
	if got := last.Millis(); got != maxNumber {
		t.Errorf("%d ms are %d", maxNumber, got)
	}
	if got := last.Since(0); got < centuries {
		t.Errorf("the last time of a node is in %v", got)
	}
	if got := NodeTime(0).Since(last); got > -centuries {
		t.Errorf("and it was %v before", got)
	}
	if got := Leads(math.MaxUint64>>1, 0); got < centuries {
		t.Errorf("the greatest token is %v ahead", got)
	}
}
