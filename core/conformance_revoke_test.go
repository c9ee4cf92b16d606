package core

// The rows of the conformance table about what operators end: a lease, and a completion record.

var conformanceRevoke = []conformanceCase{
	{name: "revoke: the key stays taken until the lease is over, and nothing of the attempt counts", frozen: true, play: `
		a acquire carry=text -> granted token=wall expiry=now+10s
		a revoke -> granted rest=10s+1
		= e=T+10s i=~ f=a ttl=24h+10s
		=x a=48h
		a renew token=a confirmed=T+10s -> gone
		a renew wb=a token=a confirmed=T+10s -> gone
		a acquire -> held rest=10s+1
		a complete ballot=a origin=a -> gone
		b acquire -> held rest=10s+1
		= e=T+10s i=~ f=a
		! sleep 10s
		b acquire -> held rest=1
		! sleep 1ms
		b acquire -> granted token=wall expiry=now+10s
		= e=now+10s i=b f=b p=a`},
	{name: "revoke: who waits keeps its place, and has its turn when the key is free", frozen: true, play: `
		! set e=T+5s i=b f=7
		a acquire wait -> held rest=5s+1 place=1
		b revoke -> granted rest=5s+1
		= e=T+5s i=~ f=7 waited=1 z=T
		=w a
		! sleep 5001ms
		c acquire -> reserved rest=49
		a acquire wait -> granted token=wall expiry=now+10s`, single: true},
	{name: "revoke: a queue that is gone", frozen: true, play: `
		! set e=T+5s i=b f=7 waited z=T-1s
		b revoke -> granted rest=5s+1
		= e=T+5s i=~ f=7 z=0`, single: true},
	{name: "revoke: says so to a release, and to one that is repeated after a completion", play: `
		! set e=T+5s i=a f=7
		a revoke -> granted rest=T+5s+1-now
		a complete ballot=7 origin=7 -> gone
		a release -> gone
		= e=T+5s i=~ f=7`},
	{name: "revoke: spent", play: `
		! set e=T-5s i=a f=7
		a revoke -> granted
		= e=T-5s i=~ f=7
		b acquire -> granted token=wall expiry=now+10s`, single: true},
	{name: "revoke: of another, and of nobody, ends nothing, and keeps the attempt away", play: `
		! set e=T+60s i=b f=9 r=c u=T+1h
		a revoke -> gone
		= e=T+60s i=b f=9 r=c u=T+1h
		=x a=48h
		b revoke -> granted rest=T+60s+1-now
		= e=T+60s i=~ f=9 r=c u=T+1h
		a renew token=7 confirmed=0 -> gone
		= e=T+60s i=~ f=9 r=c u=T+1h`, single: true},
	{name: "revoke: of nobody, where nothing is known", play: `
		a revoke -> gone
		= none
		=x a=48h
		a acquire -> gone
		= none`},
	{name: "revoke: the attempt's turn ends with it", play: `
		! set e=T+60s i=b f=9 r=a u=T+1h
		a revoke -> gone
		= e=T+60s i=b f=9
		! set r=b u=T+1h
		b revoke -> granted rest=T+60s+1-now
		= e=T+60s i=~ f=9`, single: true},
	{name: "revoke: an attempt that is over stays so", play: `
		! set e=T+5s i=a f=7
		a release -> granted
		a revoke -> gone
		= f=7
		a renew token=7 confirmed=0 -> gone`},
	{name: "revoke: ... also where only its name says so", play: `
		! set e=T+5s i=a f=7
		a release answered -> granted
		a revoke -> gone
		= f=7`},
	{name: "revoke: a record stays, for as long as before", frozen: true, play: `
		! set e=T+5s i=a f=9 ballot=5 kept=T+72h origin=5 result=text
		a revoke -> granted rest=5s+1
		= e=T+5s i=~ f=9 ballot=5 kept=T+72h origin=5 result=text ttl=74h`},
	{name: "revoke: a completion that comes after it is refused, also where the lease was not", play: `
		a revoke -> gone
		a complete ballot=7 origin=7 -> gone
		a complete ballot=7 origin=7 decided -> granted
		a release -> gone`},
	{name: "forget: a record", frozen: true, play: `
		! set f=9 ballot=7 kept=T+72h origin=5 result=text ttl=74h
		a forget token=7 -> done
		a forget token=9 -> done
		= f=9 ballot=7 kept=T+72h origin=5 result=text
		a forget token=5 -> granted
		= f=9 ttl=74h
		a forget token=5 -> gone
		b acquire -> granted token=wall expiry=now+10s`, single: true},
	{name: "forget: beside a lease, which stays", play: `
		! set e=T+60s i=b f=9 ballot=7 kept=T+72h origin=5 r=c u=T+1h
		a forget token=5 -> granted
		= e=T+60s i=b f=9 r=c u=T+1h`, single: true},
	{name: "forget: none, and one that looks over, by a clock that may be ahead", frozen: true, play: `
		a forget token=5 -> gone
		= none
		! set f=9 ballot=7 kept=T origin=5
		a forget token=6 -> gone
		= f=9 ballot=7 kept=T origin=5
		a forget token=5 -> granted
		= f=9`, single: true},
	{name: "forget: the same record may be offered again", play: `
		! set f=7 ballot=7 kept=T+72h origin=7 result=text
		a forget token=7 -> granted
		a complete ballot=7 origin=7 decided -> granted
		= f=7 ballot=7 kept=now+24h origin=7`, single: true},
}
