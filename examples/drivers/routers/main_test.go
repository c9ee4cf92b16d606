package main

import "testing"

func TestRouters(t *testing.T) {
	if err := demo(t.Context(), t.Output()); err != nil {
		t.Fatal(err)
	}
}
