package core_test

import (
	"testing"

	"github.com/lockkit/lockkit/internal/examples"
)

func TestExamples(t *testing.T) {
	examples.Run(t, map[string]func(){
		"ExampleCooldown":           ExampleCooldown,
		"ExampleDetached":           ExampleDetached,
		"ExampleLease_Extend":       ExampleLease_Extend,
		"ExampleLease_FencingToken": ExampleLease_FencingToken,
		"ExampleLocker_Acquire":     ExampleLocker_Acquire,
		"ExampleLocker_Do":          ExampleLocker_Do,
		"ExampleLocker_DoAll":       ExampleLocker_DoAll,
		"ExampleLocker_Once":        ExampleLocker_Once,
		"ExampleLocker_Ready":       ExampleLocker_Ready,
		"ExampleLocker_With":        ExampleLocker_With,
		"ExampleMaxHold":            ExampleMaxHold,
		"ExampleMaxWait":            ExampleMaxWait,
		"ExampleName":               ExampleName,
		"ExampleNew":                ExampleNew,
		"ExampleNote":               ExampleNote,
		"ExampleReentrant":          ExampleReentrant,
		"ExampleRetention":          ExampleRetention,
		"ExampleTTL":                ExampleTTL,
		"ExampleWithClockWindow":    ExampleWithClockWindow,
		"ExampleWithKeyPrefix":      ExampleWithKeyPrefix,
		"ExampleWithLogger":         ExampleWithLogger,
		"ExampleWithMaxTTL":         ExampleWithMaxTTL,
		"ExampleWithObserver":       ExampleWithObserver,
		"ExampleWithReplicaLag":     ExampleWithReplicaLag,
		"ExampleWithRestartGuard":   ExampleWithRestartGuard,
		"Example_healthCheck":       Example_healthCheck,
	})
}
