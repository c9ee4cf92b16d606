package named_test

import (
	"testing"

	"github.com/lockkit/lockkit/internal/examples"
)

func TestExamples(t *testing.T) {
	examples.Run(t, map[string]func(){
		"ExampleLocks_Lock": ExampleLocks_Lock,
	})
}
