package queuelock_test

import (
	"testing"

	"github.com/lockkit/lockkit/internal/examples"
)

func TestExamples(t *testing.T) {
	examples.Run(t, map[string]func(){
		"ExampleByHeader":            ExampleByHeader,
		"ExampleByPayloadField":      ExampleByPayloadField,
		"ExampleCooldown":            ExampleCooldown,
		"ExampleID":                  ExampleID,
		"ExampleNew":                 ExampleNew,
		"ExampleNewContext":          ExampleNewContext,
		"ExampleOptional":            ExampleOptional,
		"ExampleScheduler":           ExampleScheduler,
		"ExampleWithConcurrency":     ExampleWithConcurrency,
		"ExampleWithConcurrencyFunc": ExampleWithConcurrencyFunc,
		"ExampleWithGrace":           ExampleWithGrace,
		"ExampleWithKey":             ExampleWithKey,
		"ExampleWithRetention":       ExampleWithRetention,
		"ExampleWithWaiters":         ExampleWithWaiters,
	})
}
