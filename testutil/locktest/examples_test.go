package locktest_test

import (
	"testing"

	"github.com/lockkit/lockkit/internal/examples"
)

func TestExamples(t *testing.T) {
	examples.Run(t, map[string]func(){
		"Example":               Example,
		"ExampleEvents":         ExampleEvents,
		"ExampleLocker_Lose":    ExampleLocker_Lose,
		"ExampleLocker_Replica": ExampleLocker_Replica,
		"ExampleNew":            ExampleNew,
		"ExampleRecord":         ExampleRecord,
	})
}
