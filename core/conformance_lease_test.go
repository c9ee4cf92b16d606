package core

import "time"

// The rows of the conformance table about renewing and releasing a lease.

var conformanceRenew = []conformanceCase{
	{name: "renew: own", play: `
		a acquire -> granted token=wall expiry=now+10s
		a renew token=a confirmed=now+10s -> granted expiry=now+10s
		= e=now+10s i=a f=a ttl=24h+10s`},
	{name: "renew: own, spent and not taken", play: `
		! set e=T-5s i=a f=7
		a renew token=7 confirmed=T-5s -> granted expiry=now+10s
		= e=now+10s i=a f=7`},
	{name: "renew: never shortens", play: `
		! set e=T+60s i=a f=7
		a renew token=7 confirmed=T+60s -> granted expiry=T+60s
		= e=T+60s i=a f=7 ttl=24h+60s`},
	{name: "renew: never lowers the counter", play: `
		! set e=T+55s i=a f=9
		a renew token=7 confirmed=T+55s -> passed expiry=T+55s
		= e=T+55s i=a f=9`},
	{name: "renew: raises the counter", play: `
		! set e=T+55s i=a f=1812345678901233
		a renew token=1812345678901234 confirmed=T+55s -> granted expiry=T+55s
		= e=T+55s i=a f=1812345678901234`},
	{name: "renew: a counter ahead of the clock, and a record, live as long as before", frozen: true, play: `
		! set e=T+55s i=a f=U+172800000000
		a renew token=7 confirmed=T+55s -> passed expiry=T+55s
		= e=T+55s i=a f=U+172800000000 ttl=48h+3h
		! set ballot=5 kept=T+72h origin=5 result=text
		a renew token=7 confirmed=T+55s -> passed expiry=T+55s
		= e=T+55s i=a f=U+172800000000 ballot=5 kept=T+72h origin=5 result=text ttl=74h`},
	{name: "renew: free node", play: `
		a renew token=7 confirmed=0 -> granted expiry=now+10s
		= e=now+10s i=a f=7 ttl=24h+10s
		b acquire -> held rest=10s+1`, frozen: true},
	{name: "renew: free node, counter at the token", play: `
		! set f=7
		a renew token=7 confirmed=0 -> granted expiry=now+10s
		= e=now+10s i=a f=7`},
	{name: "renew: free node, counter past the token", play: `
		! set f=8
		a renew token=7 confirmed=0 -> passed expiry=now+10s
		= e=now+10s i=a f=8
		a renew token=7 confirmed=now+10s -> passed expiry=now+10s`},
	{name: "renew: the owner was granted with a counter that others have passed since", play: `
		! set e=T-1 i=b f=9 p=8
		a renew token=7 confirmed=0 -> passed expiry=now+10s
		= e=now+10s i=a f=9 p=0
		a acquire -> gone
		a release undo -> granted
		= f=9`},
	{name: "renew: held by another, until its turn", play: `
		! set e=T+60s i=b f=5
		a renew token=7 confirmed=T+60s -> gone
		= e=T+60s i=b f=5 r=a u=now+1500
		b release -> granted
		= f=5 r=a u=now+1500`, frozen: true},
	{name: "turn: others are kept out until it ends", frozen: true, play: `
		! set f=5 r=a u=T+1500
		b acquire -> held rest=1500
		b acquire recover -> held rest=1500
		= f=5 r=a u=T+1500
		! sleep 1499ms
		b acquire -> held rest=1
		! sleep 1ms
		b acquire -> granted token=wall expiry=now+10s
		= e=now+10s i=b f=b p=5`},
	{name: "turn: the holder takes it", play: `
		! set f=5 r=a u=T+1h
		a renew token=7 confirmed=0 -> granted expiry=now+10s
		= e=now+10s i=a f=7`},
	{name: "turn: ends with the attempt that has it", play: `
		! set e=T+60s i=b f=9 r=a u=T+1h
		a release -> gone
		= e=T+60s i=b f=9
		! set r=c u=T+1h
		c complete ballot=7 origin=7 -> gone
		= e=T+60s i=b f=9`},
	{name: "turn: of another outlasts a grant that is undone", play: `
		! set e=T+59s i=b f=9 p=0 r=a u=T+1h
		b release undo -> granted
		= r=a u=T+1h ttl=3h`},
	{name: "turn: of another stays where a record is accepted", play: `
		! set f=5 r=b u=T+1h
		a complete ballot=7 origin=7 -> granted
		= f=7 ballot=7 kept=now+24h origin=7 r=b u=T+1h
		c release -> gone
		= f=7 ballot=7 kept=T+24h origin=7 r=b u=T+1h`, frozen: true},
	{name: "turn: does not keep out whose it is", play: `
		! set f=5 r=a u=T+1h
		a acquire -> granted token=wall expiry=now+10s
		= e=now+10s i=a f=a p=5`},
	{name: "turn: a record comes first", play: `
		! set f=9 ballot=8 kept=T+60s origin=8 r=a u=T+1h
		b acquire -> done ballot=8 kept=T+60s-now origin=8`},
	{name: "turn: none for an attempt that is over, none for a write-back", play: `
		a release -> gone
		! set e=T+60s i=b f=5
		a renew token=7 confirmed=T+60s -> gone
		c renew wb=6 token=7 confirmed=T+60s -> gone
		= e=T+60s i=b f=5`},
	{name: "renew: held by another to the last millisecond", frozen: true, play: `
		! set e=T i=b f=5
		a renew token=7 confirmed=0 -> gone
		! sleep 1ms
		a renew token=7 confirmed=0 -> granted expiry=now+10s`},
	{name: "renew: spent lease of an older attempt", play: `
		! set e=T-1 i=b f=5
		a renew token=7 confirmed=0 -> granted expiry=now+10s
		= e=now+10s i=a f=7`},
	{name: "renew: spent lease of a newer attempt", play: `
		! set e=T-1 i=b f=9
		a renew token=7 confirmed=0 -> passed expiry=now+10s
		= e=now+10s i=a f=9`},
	{name: "renew: after the attempt is over", play: `
		a release -> gone
		a renew token=7 confirmed=T+60s -> gone
		= none`},
	{name: "renew: healed within the confirmed lease", play: `
		a renew token=7 confirmed=T+60s -> healed expiry=now+10s
		= e=now+10s i=a f=7 ttl=24h+10s`},
	{name: "renew: healed in quarantine", opts: conformGuarded, play: `
		a renew token=7 confirmed=T+60s -> healed expiry=now+10s
		=g h=live s=now m=10s
		= e=now+10s i=a f=7
		b acquire -> quarantined rest=10s`, frozen: true},
	{name: "renew: not healed once the confirmed lease has passed", opts: conformGuarded, play: `
		a renew token=7 confirmed=T-1 -> quarantined rest=10s
		=g h=live s=now m=10s
		= none`},
	{name: "renew: healed to the millisecond", opts: conformGuarded, frozen: true, play: `
		! guard h=live s=T+60s-10s m=10s
		a renew token=7 confirmed=T+1100 -> quarantined rest=60s
		a renew token=7 confirmed=T+1101 -> healed expiry=now+10s`},
	{name: "renew: healed to the millisecond, without a window", opts: []Option{WithRestartGuard(true), WithClockWindow(0)}, frozen: true, play: `
		! guard h=live s=T+50s m=10s
		a renew token=7 confirmed=T -> quarantined rest=60s
		a renew token=7 confirmed=T+1 -> healed expiry=now+10s`},
	{name: "renew: own lease of a snapshot, which has run out since", opts: conformGuarded, play: `
		! guard h=old s=T-1h m=10s
		! set e=T+55s i=a f=7
		a renew token=7 confirmed=T+1s -> quarantined rest=10s
		= e=T+55s i=a f=7
		! set e=T-5s
		a renew token=7 confirmed=T-5s -> quarantined rest=T+10s-now
		= e=T-5s i=a f=7`, frozen: true},
	{name: "renew: a ghost out of a snapshot gives way", opts: conformGuarded, play: `
		! guard h=old s=T-1h m=10s
		! set e=T+60s i=b f=5 p=4
		a renew token=7 confirmed=T+59s -> healed expiry=T+60s
		= e=T+60s i=a f=7 p=0
		! set i=b f=9
		a renew token=7 confirmed=T+59s -> passed expiry=T+60s`, frozen: true},
	{name: "renew: a ghost stays for a holder whose lease has run out, and testifies against nobody", opts: conformGuarded, play: `
		! guard h=live s=T+50s m=10s
		! set e=T+60s i=b f=5
		a renew token=7 confirmed=T -> quarantined rest=T+60s-now
		= e=T+60s i=b f=5`},
	{name: "write-back: not in quarantine", opts: conformGuarded, play: `
		! guard h=live s=T+50s m=10s
		! set e=T+55s i=a f=7
		a renew wb=7 token=9 confirmed=0 -> quarantined rest=T+60s-now
		= e=T+55s i=a f=7`},
	{name: "write-back: only in the memory that granted", opts: conformGuarded, play: `
		! guard h=live s=T-60s m=10s
		! set e=T+55s i=a f=7
		a renew wb=7 token=9 memory=01234567.8 confirmed=0 -> gone
		= e=T+55s i=a f=7`},
	{name: "renew: never had the node, which is in quarantine", opts: conformGuarded, play: `
		! guard h=live s=T+60s-10s m=10s
		a renew token=7 confirmed=0 -> quarantined rest=T+60s-now
		= none`},
	{name: "renew: never had the node, which has come out of quarantine", opts: conformGuarded, play: `
		! guard h=live s=T-1-10s m=10s
		a renew token=7 confirmed=0 -> granted expiry=now+10s
		= e=now+10s i=a f=7`},
	{name: "renew: own in quarantine", opts: conformGuarded, play: `
		! set e=T+55s i=a f=7
		a renew token=7 confirmed=T+55s -> healed expiry=T+55s
		=g h=live s=now m=10s
		= e=T+55s i=a f=7`, frozen: true},
	{name: "renew: nothing counts, or is written, while an old primary may serve", opts: conformLag, play: `
		! set e=T+55s i=a f=7
		a renew token=7 confirmed=T+55s -> unconfirmed
		=g h=live s=now m=10s
		= e=T+55s i=a f=7
		! guard s=T-2s
		a renew token=7 confirmed=T+55s -> healed expiry=T+55s`, frozen: true},
	{name: "renew: lag to the millisecond, healed or not", opts: conformLag, frozen: true, play: `
		! guard h=live s=T-1999 m=10s
		a renew token=7 confirmed=T+55s -> unconfirmed
		! sleep 1ms
		a renew token=7 confirmed=T+55s -> healed expiry=now+10s
		b renew token=7 confirmed=0 -> quarantined rest=10s
		= e=now+10s i=a f=7`},
	{name: "renew: a node declared new has no primary before it", opts: conformLag, play: `
		! guard h=live s=T m=10s v=1
		! set e=T+55s i=a f=7
		a renew token=7 confirmed=T+55s -> granted expiry=T+55s
		a complete ballot=7 origin=7 -> granted
		= f=7 ballot=7 kept=now+24h origin=7`},
	{name: "renew: clock window", play: `
		! set e=T+55s i=a f=7
		a renew token=9 confirmed=T+55s wall=U+60000000 -> clock_skewed
		a renew token=9 confirmed=T+55s wall=U-60000000 -> clock_skewed
		= e=T+55s i=a f=7`},
	{name: "write-back: raises the counter of its own lease", single: true, play: `
		! set e=T+55s i=a f=7
		a renew wb=7 token=9 confirmed=0 -> granted expiry=T+55s
		= e=T+55s i=a f=9`},
	{name: "write-back: again, which cannot be told from another's grant in between", single: true, play: `
		! set e=T+55s i=a f=7
		a renew wb=7 token=9 confirmed=0 -> granted expiry=T+55s
		a renew wb=7 token=9 confirmed=0 -> gone`},
	{name: "write-back: not past another token than was granted", play: `
		! set e=T+55s i=a f=8
		a renew wb=7 token=9 confirmed=T+55s -> gone
		= e=T+55s i=a f=8`},
	{name: "write-back: never takes a free node", play: `
		a renew wb=7 token=9 confirmed=T+60s -> gone
		= none
		! set f=7
		a renew wb=7 token=9 confirmed=0 -> gone
		= f=7`},
	{name: "write-back: never takes a foreign node", play: `
		! set e=T-1 i=b f=7
		a renew wb=7 token=9 confirmed=T+60s -> gone
		= e=T-1 i=b f=7
		! set e=T+60s
		a renew wb=7 token=9 confirmed=T+60s -> gone
		= e=T+60s i=b f=7`},
}

var conformanceRelease = []conformanceCase{
	{name: "release: own, then again", play: `
		a acquire -> granted token=wall expiry=now+10s
		a release -> granted
		= f=a ttl=3h
		=x a=3s
		a release -> granted
		= f=a
		=x a=3s
		b acquire -> granted token=>a expiry=now+10s`},
	{name: "release: own, spent", play: `
		! set e=T-1 i=a f=7
		a release -> granted
		= f=7
		=x a=3s`},
	{name: "release: nothing can arrive any more, so there is no tombstone", play: `
		a acquire -> granted token=wall expiry=now+10s
		a release answered -> granted
		= f=a ttl=3h
		=x
		a release answered -> granted
		a acquire -> gone
		a renew token=7 confirmed=T+60s -> gone
		= f=a
		b acquire -> granted token=>a expiry=now+10s
		= e=now+10s i=b f=b p=a
		a release answered -> gone
		=x a=3s`},
	{name: "release: the acquisition has arrived where the lease is", play: `
		a acquire -> granted token=wall expiry=now+10s
		b release alone -> gone
		=x b=3s
		a release alone -> granted
		a release alone -> granted
		=x b=3s`},
	{name: "release: a counter put back without a tombstone", play: `
		! set f=7 e=T+59s i=a p=6
		a release undo answered -> granted
		= f=6 ttl=3h
		=x
		a release undo answered -> granted
		= f=6`},
	{name: "release: of another's lease", play: `
		! set e=T+60s i=b f=7 ttl=48h
		a release -> gone
		= e=T+60s i=b f=7 ttl=48h
		=x a=3s`},
	{name: "release: of nothing", play: `
		a release -> gone
		= none
		=x a=3s`},
	{name: "release: without a clock window tombstones last for four leases", opts: conformNoWindow, play: `
		a release -> gone
		=x a=40s`},
	{name: "release: a cooldown keeps the key taken, and nobody can extend it", play: `
		! set e=T+59s i=a f=U+7
		a release cooldown=60s -> granted
		= e=now+60s i=~a f=U+7 ttl=24h+60s
		=x a=3s
		a renew token=U+7 confirmed=T+59s -> gone
		a release cooldown=50s -> granted
		= e=>T+59s i=~a f=U+7
		a release -> granted
		a complete ballot=U+7 origin=U+7 -> gone
		b renew token=U+8 confirmed=0 -> gone`},
	{name: "release: a cooldown ends", frozen: true, play: `
		! set e=T+59s i=a f=U+7
		a release cooldown=4s -> granted
		= e=T+4s i=~a f=U+7
		b acquire -> held rest=4s+1
		! sleep 4s
		b acquire -> held rest=1
		! sleep 1ms
		b acquire -> granted token=wall expiry=now+10s
		= e=now+10s i=b f=b`},
	{name: "release: a cooldown may outlast the lease", play: `
		! set e=T+60s i=a f=7 p=6
		a release answered cooldown=12h -> granted
		= e=now+12h i=~a f=7 ttl=36h`},
	{name: "release: no cooldown begins where the lease is over, however often it is asked for", play: `
		! set e=T-1 i=a f=7
		a release cooldown=60s -> too_late
		= f=7 ttl=3h
		=x a=3s
		a release cooldown=60s -> too_late
		a release -> granted`},
	{name: "release: no cooldown begins where the lease is over, and leaves no tombstone", play: `
		! set e=T-1 i=a f=7
		a release answered cooldown=60s -> too_late
		= f=7 ttl=3h
		=x
		a release answered cooldown=60s -> too_late
		a renew token=7 confirmed=T+59s -> gone`},
	{name: "release: no cooldown begins after a completion", play: `
		! set e=T+59s i=a f=9
		a complete ballot=9 origin=9 -> granted
		a release cooldown=60s -> too_late
		a release -> granted`},
	{name: "release: no cooldown begins after a completion that was refused", play: `
		! set e=T+59s i=a f=9
		a complete ballot=7 origin=7 -> gone
		a release cooldown=60s -> gone refused=1
		a release -> gone refused=1`},
	{name: "release: a cooldown outlasts a clock that jumps, beside a record, too", play: `
		! set e=T+59s i=a f=9 ballot=9 kept=T+1h origin=9 result=text ttl=3h
		a release cooldown=60s -> granted
		= e=now+60s i=~a f=9 ballot=9 kept=T+1h origin=9 result=text ttl=24h+60s`},
	{name: "release: a cooldown of another's lease", play: `
		! set e=T+60s i=b f=7
		a release cooldown=2h -> gone
		= e=T+60s i=b f=7`},
	{name: "release: drops a record below its ballot", play: `
		! set e=T+59s i=a f=9 ballot=8 kept=T+60s origin=8 result=binary
		a release drop=9 -> granted
		= f=9 ttl=3h`},
	{name: "release: keeps the record of its ballot and above", play: `
		! set e=T+59s i=a f=9 ballot=9 kept=T+48h origin=9 result=binary ttl=48h
		a release drop=9 -> granted
		= f=9 ballot=9 kept=T+48h origin=9 result=binary ttl=48h`},
	{name: "release: ballots of 16 digits are exact", play: `
		! set e=T+59s i=a f=9 ballot=1812345678901234 kept=T+60s origin=9
		a release drop=1812345678901234 -> granted
		= f=9 ballot=1812345678901234 kept=T+60s origin=9
		b release drop=1812345678901235 -> gone
		= f=9`},
	{name: "release: keeps a record unless told", play: `
		! set e=T+59s i=a f=9 ballot=8 kept=T+48h origin=8 ttl=48h
		a release -> granted
		= f=9 ballot=8 kept=T+48h origin=8 ttl=48h`},
	{name: "release: drops where it holds nothing, and touches no lease", play: `
		! set e=T+60s i=b f=9 ballot=8 kept=T+60s origin=8
		a release drop=9 -> gone
		= e=T+60s i=b f=9
		=x a=3s`},
	{name: "release: nobody has seen the token, so the counter is put back", play: `
		! set f=U+9000000
		a acquire -> granted token=U+9000001 expiry=now+10s
		= e=now+10s i=a f=a p=U+9000000
		a renew wb=U+9000001 token=U+9000005 confirmed=0 -> granted expiry=now+10s
		= e=now+10s i=a f=U+9000005 p=U+9000000
		a release undo -> granted
		= f=U+9000000 ttl=3h
		=x a=3s`, single: true, frozen: true},
	{name: "release: nobody has seen the token of a key that was never used", play: `
		a acquire carry=text -> granted token=wall expiry=now+10s
		= e=now+10s i=a f=a p=0 c=a:text
		a release undo -> granted
		= none
		=x a=3s
		a release undo -> granted
		= none`},
	{name: "release: the counter that is put back has 16 digits", play: `
		! set e=T+59s i=a f=1812345678901235 p=1812345678901234
		a release undo -> granted
		= f=1812345678901234`},
	{name: "release: not below a record that was accepted meanwhile", play: `
		! set e=T+59s i=a f=9 p=5 ballot=8 kept=T+48h origin=8
		a release undo -> granted
		= f=8 ballot=8 kept=T+48h origin=8`},
	{name: "release: not another's counter", play: `
		! set e=T+59s i=b f=9 p=5
		a release undo -> gone
		= e=T+59s i=b f=9 p=5`},
	{name: "release: nothing to put back where the node was not granted", play: `
		! set e=T+59s i=a f=9
		a release undo -> granted
		= f=9`},
	// A token must be greater than all earlier ones even if clients' clocks differ, the counter has been forgotten, and
	// the lease was short compared with the longest one in use.
	{name: "release: the counter outlives what clocks may differ", frozen: true,
		opts: []Option{WithClockWindow(0), WithMaxTTL(3 * time.Hour)}, play: `
		a acquire wall=U+2700000000 -> granted token=U+2700000000 expiry=now+10s
		a release -> granted
		! sleep 3h
		b acquire wall=U -> granted token=>a expiry=now+10s`},
}
