package httplock_test

import (
	"testing"

	"github.com/lockkit/lockkit/internal/examples"
)

func TestExamples(t *testing.T) {
	examples.Run(t, map[string]func(){
		"Example":                Example,
		"ExampleByFunc":          ExampleByFunc,
		"ExampleByJSON":          ExampleByJSON,
		"ExampleByKey":           ExampleByKey,
		"ExampleByParam":         ExampleByParam,
		"ExampleWithBodyLimit":   ExampleWithBodyLimit,
		"ExampleWithIdempotency": ExampleWithIdempotency,
		"ExampleWithMaxWait":     ExampleWithMaxWait,
		"ExampleWithMaxWaiters":  ExampleWithMaxWaiters,
		"ExampleWithMemory":      ExampleWithMemory,
		"ExampleWithReply":       ExampleWithReply,
		"ExampleWithRetention":   ExampleWithRetention,
		"ExampleWithTenant":      ExampleWithTenant,
	})
}
