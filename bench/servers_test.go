package main

import (
	"testing"
	"time"
)

func TestReadUse(t *testing.T) {
	const stats = "# Commandstats\r\n" +
		"cmdstat_evalsha:calls=10,usec=70,usec_per_call=7.00,rejected_calls=0,failed_calls=0\r\n" +
		"cmdstat_eval:calls=1,usec=30,usec_per_call=30.00,rejected_calls=0,failed_calls=0\r\n" +
		"cmdstat_set:calls=5,usec=20,usec_per_call=4.00,rejected_calls=0,failed_calls=0\r\n"
	const cpu = "# CPU\r\nused_cpu_sys:1.500000\r\nused_cpu_user:0.250000\r\nused_cpu_sys_children:9.0\r\n"
	if got, want := readUse(stats, cpu, ""), (serverUse{11, 100 * time.Microsecond, 1750 * time.Millisecond}); got != want {
		t.Errorf("scripts: got %+v, want %+v", got, want)
	}
	if got, want := readUse(stats, cpu, "set"), (serverUse{16, 120 * time.Microsecond, 1750 * time.Millisecond}); got != want {
		t.Errorf("scripts and SET: got %+v, want %+v", got, want)
	}
	before, after := []serverUse{{1, 10, 100}, {2, 20, 200}}, []serverUse{{5, 50, 500}, {4, 40, 400}}
	if got, want := spent(before, after), (serverUse{3, 30, 300}); got != want {
		t.Errorf("spent per node: got %+v, want %+v", got, want)
	}
}
