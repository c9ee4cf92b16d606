package main

import "testing"

func TestReadTraffic(t *testing.T) {
	const stats = "# Commandstats\r\n" +
		"cmdstat_evalsha:calls=10,usec=70,usec_per_call=7.00,rejected_calls=0,failed_calls=0\r\n" +
		"cmdstat_set:calls=5,usec=20,usec_per_call=4.00,rejected_calls=0,failed_calls=0\r\n" +
		"cmdstat_setex:calls=7,usec=20,usec_per_call=4.00,rejected_calls=0,failed_calls=0\r\n" +
		"cmdstat_subscribe:calls=2,usec=20,usec_per_call=4.00,rejected_calls=0,failed_calls=0\r\n" +
		"cmdstat_publish:calls=3,usec=20,usec_per_call=4.00,rejected_calls=0,failed_calls=0\r\n"
	if got, want := readTraffic(stats, ""), (traffic{requests: 12, published: 3}); got != want {
		t.Errorf("scripts: got %+v, want %+v", got, want)
	}
	if got, want := readTraffic(stats, "set"), (traffic{requests: 17, published: 3}); got != want {
		t.Errorf("scripts and SET: got %+v, want %+v", got, want)
	}
	if got, want := (traffic{17, 3}).since(traffic{10, 1}), (traffic{7, 2}); got != want {
		t.Errorf("since: got %+v, want %+v", got, want)
	}
}
