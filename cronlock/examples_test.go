package cronlock_test

import (
	"testing"

	"github.com/lockkit/lockkit/internal/examples"
)

func TestExamples(t *testing.T) {
	examples.Run(t, map[string]func(){
		"ExampleAt":          ExampleAt,
		"ExampleAtLeastOnce": ExampleAtLeastOnce,
		"ExampleCrontab":     ExampleCrontab,
		"ExampleEvery":       ExampleEvery,
		"ExampleNewContext":  ExampleNewContext,
		"ExampleWithElector": ExampleWithElector,
		"ExampleWithGrace":   ExampleWithGrace,
		"ExampleWithHost":    ExampleWithHost,
	})
}
