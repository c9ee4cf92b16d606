package core

// The rows of the conformance table about calls that wait for a key.

var conformanceQueue = []conformanceCase{
	{name: "queue: who waits is in it, and the resource is marked", play: `
		! set e=T+60s i=b f=7 ttl=1h
		a acquire -> held rest=T+60s+1-now
		= e=T+60s i=b f=7
		=w
		a acquire wait ticket=U -> held rest=T+60s+1-now place=1
		= e=T+60s i=b f=7 waited=1 ttl=1h
		=w a
		c acquire -> held rest=T+60s+1-now
		d acquire wait ticket=U+1 -> held rest=T+60s+1-now place=2
		=w a d`},
	{name: "queue: in the order in which the calls began", play: `
		! set e=T+60s i=b f=7
		a acquire wait ticket=U -> held rest=T+60s+1-now place=1
		c acquire wait ticket=U-1s -> held rest=T+60s+1-now place=1
		=w c a`},
	{name: "queue: another attempt of the same call has its place", play: `
		! set e=T+60s i=b f=7
		a acquire wait ticket=U -> held rest=T+60s+1-now place=1
		c acquire wait ticket=U+1 -> held rest=T+60s+1-now place=2
		d acquire wait ticket=U for=a -> held rest=T+60s+1-now place=1
		=w a c`},
	{name: "queue: a key that is released is kept for who waits", frozen: true, play: `
		b acquire -> granted token=wall expiry=now+10s
		a acquire wait -> held rest=10001 place=1
		b release drop=b -> granted
		= f=b waited=1 z=T
		c acquire -> reserved rest=50
		d acquire wait ticket=U+1 -> reserved rest=50 place=2
		=w a d
		a acquire wait -> granted token=b+1 expiry=now+10s
		= e=now+10s i=a f=a p=b waited=1 z=T
		=w d`},
	{name: "queue: for 50 ms each, of those before, and 150 ms in all", frozen: true, play: `
		! set e=T+1 i=b f=7
		a acquire wait ticket=U+1 -> held rest=2 place=1
		c acquire wait ticket=U+2 -> held rest=2 place=2
		d acquire wait ticket=U+3 -> held rest=2 place=3
		x acquire wait ticket=U+4 -> held rest=2 place=4
		y acquire wait ticket=U+5 -> held rest=2 place=5
		! sleep 2ms
		z acquire -> reserved rest=149
		y acquire wait ticket=U+5 -> reserved rest=149 place=5
		x acquire wait ticket=U+4 -> reserved rest=149 place=4
		d acquire wait ticket=U+3 -> reserved rest=99 place=3
		c acquire wait ticket=U+2 -> reserved rest=49 place=2
		! sleep 48ms
		c acquire wait ticket=U+2 -> reserved rest=1 place=2
		! sleep 1ms
		c acquire wait ticket=U+2 -> granted token=wall expiry=now+10s
		=w d x y
		c release drop=c waited -> granted
		=w d x y`},
	{name: "queue: who does not wait comes when all of them had their turn", frozen: true, play: `
		! set e=T+1 i=b f=7
		a acquire wait -> held rest=2 place=1
		! sleep 50ms
		c acquire -> reserved rest=1
		! sleep 1ms
		c acquire -> granted token=wall expiry=now+10s
		=w`},
	{name: "queue: no turn lasts for as long as the clock was set back", frozen: true, play: `
		! set e=T+60s i=b f=7
		a acquire wait -> held rest=60001 place=1
		! set e=0 z=T+8s
		c acquire -> granted token=wall expiry=now+10s`},
	{name: "queue: an attempt that is taken back begins no new turns", frozen: true, play: `
		! set e=T+1 i=b f=7
		a acquire wait ticket=U+1 -> held rest=2 place=1
		c acquire wait ticket=U+2 -> held rest=2 place=2
		d acquire wait ticket=U+3 -> held rest=2 place=3
		! sleep 51ms
		c acquire wait ticket=U+2 -> granted token=wall expiry=now+10s
		=w d
		c release undo waits -> granted
		= f=7 waited=1 z=T+1
		=w c d
		x acquire -> reserved rest=50`, single: true},
	{name: "queue: nobody who came while turns were not counted yet is passed", frozen: true, play: `
		! set e=T+60s i=b f=7
		a acquire wait ticket=U+1 -> held rest=T+60s+1-now place=1
		c acquire wait ticket=U+2 -> held rest=T+60s+1-now place=2
		b release undo -> granted
		c acquire wait ticket=U+2 -> granted token=wall expiry=now+10s
		=w a`, single: true},
	{name: "queue: a place that is given back to the only one", frozen: true, play: `
		! set e=T+1 i=b f=7
		a acquire wait ticket=U+1 -> held rest=2 place=1
		! sleep 2ms
		a acquire wait ticket=U+1 for=a -> granted token=wall expiry=now+10s
		=w
		a release undo waits -> granted
		= f=7 waited=1 z=T+1
		=w a`, single: true},
	{name: "queue: who has stopped waiting leaves it", play: `
		! set e=T+60s i=b f=7
		a acquire wait ticket=U -> held rest=T+60s+1-now place=1
		c acquire wait ticket=U+1 -> held rest=T+60s+1-now place=2
		a release quits waited -> gone
		=w c
		= e=T+60s i=b f=7 waited=1
		c release quits waited -> gone
		=w
		= e=T+60s i=b f=7`},
	{name: "queue: the end of a lease takes its own call out", play: `
		! set e=T+60s i=b f=7
		b2 acquire wait for=b ticket=U -> held rest=T+60s+1-now place=1
		c acquire wait ticket=U+1 -> held rest=T+60s+1-now place=2
		b release drop=7 waited -> granted
		=w c`},
	{name: "queue: nobody in it any more", play: `
		! set e=T+60s i=b f=7 waited z=5
		b release drop=7 -> granted
		= f=7`},
	{name: "queue: something else has its name", play: `
		! set e=T+60s i=b f=7
		! noqueue
		a acquire wait -> held rest=T+60s+1-now
		= e=T+60s i=b f=7`},
	{name: "queue: a completion ends the hold", frozen: true, play: `
		! set e=T+60s i=b f=7
		a acquire wait -> held rest=60001 place=1
		b complete ballot=7 origin=7 result=text -> granted
		= f=7 ballot=7 kept=now+24h origin=7 result=text waited=1 z=T
		=w a
		a acquire wait -> done ballot=7 kept=24h origin=7 result=text`},
	{name: "queue: a renewal leaves it alone", play: `
		! set e=T+60s i=b f=7 waited z=5
		b renew token=7 confirmed=T+60s -> granted expiry=T+60s
		= e=T+60s i=b f=7 waited=1 z=5`},
}
