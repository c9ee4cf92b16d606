package main

import (
	"testing"
	"time"
)

func TestBystander(t *testing.T) {
	b := startBystander()
	time.Sleep(20 * time.Millisecond)
	if stood := b.end(); stood < 0 || stood > time.Minute {
		t.Errorf("stood still for %v", stood)
	}
}
