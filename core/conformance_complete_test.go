package core

import "time"

// The rows of the conformance table about completion records.

var shortRetention = []Option{Retention(time.Second)}

var conformanceComplete = []conformanceCase{
	{name: "complete: own", play: `
		a acquire -> granted token=wall expiry=now+10s
		a complete ballot=a origin=a result=text -> granted
		= f=a ballot=a kept=now+24h origin=a result=text ttl=26h
		=x a=3s
		b acquire -> done ballot=a kept=24h origin=a result=text
		a renew token=a confirmed=T+60s -> gone
		a acquire -> done ballot=a kept=24h origin=a result=text
		a release -> granted`, frozen: true},
	{name: "complete: own, spent", play: `
		! set e=T-5s i=a f=7
		a complete ballot=7 origin=7 -> granted
		= f=7 ballot=7 kept=now+24h origin=7`},
	{name: "complete: absent, nothing known", play: `
		a complete ballot=7 origin=7 -> granted
		= f=7 ballot=7 kept=now+24h origin=7 ttl=26h
		=x a=3s`},
	{name: "complete: absent, counter at the token", play: `
		! set f=7
		a complete ballot=7 origin=7 -> granted
		= f=7 ballot=7 kept=now+24h origin=7`},
	{name: "complete: absent, counter past the token", play: `
		! set f=8
		a complete ballot=7 origin=7 -> gone
		= f=8`},
	{name: "complete: own, counter past the token", play: `
		! set e=T+59s i=a f=8
		a complete ballot=7 origin=7 -> gone
		= f=8`},
	{name: "complete: tokens of 16 digits are exact", play: `
		! set f=1812345678901235
		a complete ballot=1812345678901234 origin=1812345678901234 -> gone
		= f=1812345678901235
		a complete ballot=1812345678901235 origin=1812345678901234 -> granted
		= f=1812345678901235 ballot=1812345678901235 kept=now+24h origin=1812345678901234`},
	{name: "complete: held by another", play: `
		! set e=T+60s i=b f=5
		a complete ballot=7 origin=7 -> gone
		= e=T+60s i=b f=5`},
	{name: "complete: held by another to the last millisecond", frozen: true, play: `
		! set e=T i=b f=5
		a complete ballot=7 origin=7 -> gone
		! sleep 1ms
		a complete ballot=7 origin=7 -> granted
		= f=7 ballot=7 kept=now+24h origin=7`},
	{name: "complete: a spent lease of another goes, so that its write-back cannot count", play: `
		! set e=T-1 i=b f=5
		a complete ballot=7 origin=7 -> granted
		= f=7 ballot=7 kept=now+24h origin=7
		b renew wb=5 token=9 confirmed=0 -> gone`},
	{name: "complete: greater record", play: `
		! set f=7 ballot=8 kept=T+60s origin=8 result=text
		a complete ballot=7 origin=7 result=other -> done ballot=8 kept=T+60s-now origin=8
		= f=7 ballot=8 kept=T+60s origin=8 result=text`},
	{name: "complete: own record, settled by another: kept for longer", play: `
		! set f=9 ballot=9 kept=T+60s origin=7 result=text
		a complete ballot=7 origin=7 result=other -> done ballot=9 kept=24h origin=7
		= f=9 ballot=9 kept=now+24h origin=7 result=text ttl=26h`},
	{name: "complete: own record, settled by another: never kept for less", play: `
		! set f=9 ballot=9 kept=T+48h origin=7 result=text
		a complete ballot=7 origin=7 result=text -> done ballot=9 kept=T+48h-now origin=7
		= f=9 ballot=9 kept=T+48h origin=7 result=text`},
	{name: "complete: a record that another settles too late is kept for no longer", play: `
		! set f=9 ballot=9 kept=T+60s origin=7 result=text
		a complete ballot=8 origin=7 result=text -> done ballot=9 kept=T+60s-now origin=7
		a complete decided ballot=7 origin=7 result=text -> done ballot=9 kept=T+60s-now origin=7
		= f=9 ballot=9 kept=T+60s origin=7 result=text`},
	{name: "complete: greater record, spent", play: `
		! set f=7 ballot=8 kept=T-1 origin=8 result=text
		a complete ballot=7 origin=7 result=other -> granted
		= f=7 ballot=7 kept=now+24h origin=7 result=other`},
	{name: "complete: smaller record is replaced", play: `
		! set e=T+59s i=a f=9 ballot=8 kept=T+48h origin=8 result=text
		a complete ballot=9 origin=8 result=text -> granted
		= f=9 ballot=9 kept=now+24h origin=8 result=text`},
	{name: "complete: same ballot, kept for longer, with the first result", play: `
		! set f=7 ballot=7 kept=T+60s origin=7 result=text
		a complete ballot=7 origin=7 result=other -> granted
		= f=7 ballot=7 kept=now+24h origin=7 result=text ttl=26h
		=x a=3s`},
	{name: "complete: same ballot, never kept for less", play: `
		! set f=7 ballot=7 kept=T+48h origin=7 result=text
		a complete ballot=7 origin=7 result=text -> granted
		= f=7 ballot=7 kept=T+48h origin=7 result=text`},
	{name: "complete: same ballot, although another holds the key since", play: `
		! set e=T+60s i=b f=9 ballot=7 kept=T+60s origin=7 result=text
		a complete ballot=7 origin=7 result=text -> granted
		= e=T+60s i=b f=9 ballot=7 kept=now+24h origin=7 result=text`},
	{name: "complete: decided, the same record: kept for no longer", play: `
		! set f=7 ballot=7 kept=T+60s origin=7 result=text
		a complete decided ballot=7 origin=7 result=text -> granted
		= f=7 ballot=7 kept=T+60s origin=7 result=text
		! set f=7 ballot=7 kept=T-1 origin=7 result=text
		a complete decided ballot=7 origin=7 result=text -> granted
		= f=7 ballot=7 kept=T-1 origin=7 result=text`},
	{name: "complete: decided, counter past the ballot", play: `
		! set f=9
		a complete decided ballot=7 origin=5 result=text -> granted
		= f=9 ballot=7 kept=now+24h origin=5 result=text
		=x a=3s`},
	{name: "complete: decided, but a greater record stands", play: `
		! set f=9 ballot=8 kept=T+60s origin=8 result=text
		a complete decided ballot=7 origin=7 result=other -> done ballot=8 kept=T+60s-now origin=8
		= f=9 ballot=8 kept=T+60s origin=8 result=text`},
	{name: "complete: decided, beside the live lease of another", play: `
		! set e=T+60s i=b f=9 ttl=24h+60s
		a complete decided ballot=7 origin=7 result=text -> granted
		= e=T+60s i=b f=9 ballot=7 kept=now+24h origin=7 result=text
		=x a=3s
		b renew token=9 confirmed=T+60s -> granted expiry=T+60s`},
	{name: "complete: decided, beside the live lease of another, which keeps its slack", opts: shortRetention, play: `
		! set e=T+60s i=b f=9 ttl=24h+60s
		a complete decided ballot=7 origin=7 -> granted
		= e=T+60s i=b f=9 ballot=7 kept=now+1s origin=7 ttl=24h+60s`},
	{name: "complete: the end of the attempt that granted late", play: `
		! set e=T+59s i=a f=9
		a complete decided ballot=7 origin=7 -> granted
		= f=9 ballot=7 kept=now+24h origin=7`},
	{name: "complete: every refusal ends the attempt", play: `
		! set f=8
		a complete ballot=7 origin=7 -> gone
		=x a=3s
		a acquire -> gone
		! set f=9 ballot=9 kept=T+60s origin=9
		b complete ballot=7 origin=7 -> done ballot=9 kept=T+60s-now origin=9
		=x a=3s b=3s
		! set e=T+60s i=z f=5 ballot=3 kept=T+60s origin=3
		c complete ballot=7 origin=7 -> gone
		=x a=3s b=3s c=3s`, frozen: true},
	{name: "complete: own lease goes where it is refused", play: `
		! set e=T+59s i=a f=8 p=7
		a complete ballot=7 origin=7 -> gone
		= f=8`},
	{name: "complete: not where the node never vouched for the attempt", opts: conformGuarded, play: `
		! guard h=live s=T-60s m=10s
		! set f=5
		a complete ballot=7 origin=7 memory=- -> forgotten
		=x a=3s
		= f=5`},
	{name: "complete: in the memory that vouched for the attempt", opts: conformGuarded, play: `
		! guard h=live s=T-60s m=10s
		! set f=5
		a complete ballot=7 origin=7 -> granted
		= f=7 ballot=7 kept=now+24h origin=7`},
	{name: "complete: in that memory, also in quarantine", opts: conformGuarded, play: `
		! guard h=live s=T m=10s
		a complete ballot=7 origin=7 -> granted
		= f=7 ballot=7 kept=now+24h origin=7`},
	{name: "complete: own lease is no argument, for a snapshot can name it", opts: conformGuarded, play: `
		! guard h=old s=T-1h m=10s
		! set e=T+59s i=a f=7
		a complete ballot=7 origin=7 memory=01234567.8 -> forgotten
		= f=7`},
	{name: "complete: another memory of the same history is no argument", opts: conformGuarded, alone: true, frozen: true, play: `
		! guard h=live s=T-60s m=10s
		a acquire -> granted token=wall expiry=now+10s
		! flush
		! sleep 1ms
		a complete ballot=a origin=a memory=T-60s -> forgotten
		=g h=live s=now m=10s`},
	{name: "complete: neither written nor counted while an old primary may serve", opts: conformLag, frozen: true, play: `
		! guard h=live s=T-1999 m=10s
		a complete ballot=7 origin=7 -> unconfirmed
		= none
		=x
		! sleep 1ms
		a complete ballot=7 origin=7 -> granted
		= f=7 ballot=7 kept=now+24h origin=7`},
	{name: "complete: decided, although the node never vouched for it", opts: conformLag, play: `
		a complete decided ballot=7 origin=7 memory=- -> granted
		= f=7 ballot=7 kept=now+24h origin=7`},
	{name: "complete: in quarantine the record is shown", opts: conformGuarded, frozen: true, play: `
		! guard h=live s=T m=10s
		! set f=9 ballot=8 kept=T+60s origin=5 result=text
		b acquire -> quarantined rest=10s ballot=8 kept=60s origin=5 result=text
		b acquire recover -> quarantined rest=10s ballot=8 kept=60s origin=5 result=text
		= f=9 ballot=8 kept=T+60s origin=5 result=text`},
	{name: "complete: clock window", play: `
		! set e=T+59s i=a f=7
		a complete ballot=7 origin=7 wall=U+60000000 -> clock_skewed
		a complete ballot=7 origin=7 wall=U-60000000 -> clock_skewed
		= e=T+59s i=a f=7
		=x`},
	{name: "complete: without a result", play: `
		a complete ballot=7 origin=7 -> granted
		b acquire -> done ballot=7 kept=24h origin=7`, frozen: true},
	{name: "complete: binary result", play: `
		a complete ballot=7 origin=5 result=binary -> granted
		= f=7 ballot=7 kept=now+24h origin=5 result=binary
		b acquire -> done ballot=7 kept=24h origin=5 result=binary`, frozen: true},
	{name: "complete: result of digits and spaces", play: `
		a complete ballot=7 origin=5 result=digits -> granted
		= f=7 ballot=7 kept=now+24h origin=5 result=digits`},
	{name: "complete: the largest result", opts: []Option{Retention(time.Hour)}, frozen: true, play: `
		a complete ballot=7 origin=5 result=huge -> granted
		= f=7 ballot=7 kept=now+1h origin=5 result=huge ttl=3h
		b acquire -> done ballot=7 kept=1h origin=5 result=huge`},
	{name: "complete: the largest results through a running clock", play: `
		! set f=7 ballot=7 kept=T+60s origin=5 result=huge
		a acquire -> done ballot=7 kept=T+60s-now origin=5 result=huge
		! set f=7 ballot=7 kept=T+60s origin=5 result=binary
		a acquire -> done ballot=7 kept=T+60s-now origin=5 result=binary
		! set f=7 ballot=7 kept=T+60s origin=5
		a acquire -> done ballot=7 kept=T+60s-now origin=5`},
	{name: "complete: retention", opts: shortRetention, frozen: true, play: `
		a complete ballot=U origin=U result=text -> granted
		= f=U ballot=U kept=now+1s origin=U result=text ttl=3h
		! sleep 999ms
		b acquire -> done ballot=U kept=1 origin=U result=text
		! sleep 1ms
		b acquire -> granted token=wall expiry=now+10s
		a complete ballot=U origin=U result=text -> gone`},
	{name: "complete: the counter outlives what clocks may differ", frozen: true,
		opts: []Option{WithClockWindow(0), WithMaxTTL(3 * time.Hour), Retention(time.Second)}, play: `
		a acquire wall=U+2700000000 -> granted token=U+2700000000 expiry=now+10s
		a complete ballot=a origin=a -> granted
		! sleep 3h
		b acquire wall=U -> granted token=>a expiry=now+10s`},
}

// The rows of the conformance table about leases and completion records that an operator ends.

var conformanceRevoke = []conformanceCase{
	{name: "revoke: the key stays taken until the lease is over, and nothing of the attempt counts", frozen: true, play: `
		a acquire carry=text -> granted token=wall expiry=now+10s
		a revoke -> granted rest=10s+1
		= e=T+10s i=~ f=a ttl=24h+10s
		=x a=48h:revoked
		a renew token=a confirmed=T+10s -> gone revoked=1
		a renew wb=a token=a confirmed=T+10s -> gone revoked=1
		a acquire -> held rest=10s+1
		a complete ballot=a origin=a -> gone revoked=1
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
		! set e=T+55s i=b f=7 waited z=T-1s
		b revoke -> granted rest=55s+1
		= e=T+55s i=~ f=7 z=0`, single: true},
	{name: "revoke: says so to a release, and to one that is repeated after a completion", play: `
		! set e=T+55s i=a f=7
		a revoke -> granted rest=T+55s+1-now
		a complete ballot=7 origin=7 -> gone revoked=1
		a release -> gone revoked=1
		= e=T+55s i=~ f=7`},
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
		a renew token=7 confirmed=0 -> gone revoked=1
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
		! set e=T+55s i=a f=7
		a release -> granted
		a revoke -> gone
		= f=7
		a renew token=7 confirmed=0 -> gone`},
	{name: "revoke: ... also where only its name says so", play: `
		! set e=T+55s i=a f=7
		a release answered -> granted
		a revoke -> gone
		= f=7`},
	{name: "revoke: a record stays, for as long as before", frozen: true, play: `
		! set e=T+55s i=a f=9 ballot=5 kept=T+72h origin=5 result=text
		a revoke -> granted rest=55s+1
		= e=T+55s i=~ f=9 ballot=5 kept=T+72h origin=5 result=text ttl=74h`},
	{name: "revoke: a completion that comes after it is refused, also where the lease was not", play: `
		a revoke -> gone
		a complete ballot=7 origin=7 -> gone revoked=1
		a complete ballot=7 origin=7 decided -> granted
		a release -> gone revoked=1`},
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

// The rows of the conformance table about the end of an attempt on a node, and the replies to later requests.

var conformanceEnds = []conformanceCase{
	{name: "end: a release that found nothing has not ended the attempt", play: `
		a release -> gone
		=x a=3s:refused
		a release -> gone refused=1
		a release cooldown=60s -> gone refused=1
		=x a=3s:refused`, single: true},
	{name: "end: a release that is repeated, and finds nothing, may have ended the attempt before", play: `
		! set e=T+9s i=a f=7
		a release answered -> granted
		! set e=T+60s i=b f=9
		a release -> gone
		=x a=3s:released
		a release -> granted`, single: true},
	{name: "end: a release that leaves no tombstone where it finds the lease may have ended it before, if it does not", play: `
		a release answered -> gone
		=x a=3s:released
		a release -> granted`, single: true},
	{name: "end: released stays so, whatever becomes of a completion that comes late", play: `
		! set e=T+59s i=a f=7
		a release -> granted
		=x a=3s:released
		a complete ballot=7 origin=7 -> granted
		a release -> granted
		=x a=3s:released
		! set f=9 ballot=9 kept=T+60s origin=9
		a complete ballot=7 origin=7 -> done ballot=9 kept=T+60s-now origin=9
		a release -> granted
		=x a=3s:released`},
	{name: "end: released stays so, also where only its name says so", play: `
		! set e=T+59s i=a f=9
		a release answered -> granted
		=x
		a complete ballot=7 origin=7 -> gone
		= f=9
		=x a=3s:released
		a release -> granted`},
	{name: "end: released stays so, also where the key stays taken", play: `
		! set e=T+59s i=a f=7
		a release answered cooldown=60s -> granted
		=x
		a complete ballot=7 origin=7 -> gone
		=x a=3s:released
		a release -> granted`, single: true},
	{name: "end: completed", play: `
		! set e=T+59s i=a f=7
		a complete ballot=7 origin=7 -> granted
		=x a=3s:completed
		a release -> granted
		=x a=3s:completed`},
	{name: "end: completed, and settled by another since", play: `
		! set f=9 ballot=9 kept=T+60s origin=7 result=text
		a complete ballot=7 origin=7 result=text -> done ballot=9 kept=24h origin=7
		=x a=3s:completed
		a release -> granted`},
	{name: "end: completed, until the record of another has replaced it", play: `
		! set e=T+59s i=a f=7
		a complete ballot=7 origin=7 -> granted
		! set f=9 ballot=9 kept=T+60s origin=9
		a complete ballot=7 origin=7 -> done ballot=9 kept=T+60s-now origin=9
		=x a=3s:refused
		a release -> gone refused=1`},
	{name: "end: refused, until a completion is accepted", play: `
		! set e=T+59s i=a f=8
		a complete ballot=7 origin=7 -> gone
		=x a=3s:refused
		a release -> gone refused=1
		=x a=3s:refused
		! set f=7
		a complete ballot=7 origin=7 -> granted
		=x a=3s:completed
		a release -> granted`},
	{name: "end: refused, for the node has forgotten", opts: conformGuarded, play: `
		! guard h=live s=T-60s m=10s
		! set f=5
		a complete ballot=7 origin=7 memory=- -> forgotten
		=x a=3s:refused
		a release -> gone refused=1`},
	{name: "end: revoked, whoever completes the key since", play: `
		! set e=T+5s i=a f=7
		a revoke -> granted rest=T+5s+1-now
		! set f=9 ballot=9 kept=T+60s origin=9
		a complete ballot=7 origin=7 -> gone revoked=1
		=x a=48h:revoked
		a release -> gone revoked=1`, single: true},
	{name: "end: revoked, and its record was settled", play: `
		! set f=9 ballot=9 kept=T+60s origin=7
		a revoke -> gone
		a complete ballot=7 origin=7 -> done ballot=9 kept=24h origin=7
		=x a=48h:revoked`},
	{name: "end: revoked, also where it was completed or refused before", play: `
		! set e=T+59s i=a f=7
		a complete ballot=7 origin=7 -> granted
		a revoke -> gone
		=x a=48h:revoked
		b complete ballot=5 origin=5 -> done ballot=7 kept=24h origin=7
		b revoke -> gone
		=x a=48h:revoked b=48h:revoked`, frozen: true},
	{name: "end: released, and revoked in vain", play: `
		! set e=T+5s i=a f=7
		a release -> granted
		a revoke -> gone
		=x a=48h:released
		a release -> granted`},
	{name: "end: released without a tombstone, and revoked in vain", play: `
		! set e=T+5s i=a f=7
		a release answered -> granted
		a revoke -> gone
		! set e=T+60s i=b f=9
		a release -> granted`},
	{name: "end: released with a cooldown, and revoked in vain", play: `
		! set e=T+5s i=a f=7
		a release answered cooldown=1s -> granted
		a revoke -> gone
		! set e=T+60s i=b f=9
		a release -> granted`},
}
