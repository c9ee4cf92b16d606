package semaphore_test

import (
	"testing"

	"github.com/lockkit/lockkit/internal/examples"
)

func TestExamples(t *testing.T) {
	examples.Run(t, map[string]func(){
		"ExampleFromContext":          ExampleFromContext,
		"ExampleNew":                  ExampleNew,
		"ExamplePermit_Release":       ExamplePermit_Release,
		"ExampleSemaphore_Do":         ExampleSemaphore_Do,
		"ExampleSemaphore_TryAcquire": ExampleSemaphore_TryAcquire,
	})
}
