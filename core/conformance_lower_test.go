package core

// The rows of the conformance table about the longest lease in use that a node knows of, and about the operator who
// lowers it. The Locker's own is 10s.
var conformanceLower = []conformanceCase{
	{name: "longest: since when it is known, where it was raised", opts: conformGuarded, play: `
		! guard h=live s=T-60s m=5s
		=n none
		a acquire -> granted token=wall expiry=now+10s
		=g h=live s=T-60s m=10s
		=n m=10s s=now
		b acquire -> held rest=10s+1
		=n m=10s s=now`, frozen: true},
	{name: "longest: what the first request brought is as old as the memory", opts: conformGuarded, play: `
		a acquire -> quarantined rest=10s
		=g h=live s=now m=10s
		=n none`},
	{name: "lower: marked, then lowered", opts: conformGuarded, single: true, play: `
		! guard h=live s=T-1h m=20s
		p mark to=5s -> granted claim=mark longest=20s
		=g h=live s=T-1h m=20s k=5s
		p check -> granted
		=g h=live s=T-1h m=20s k=5s
		p lower to=5s -> granted
		=g h=live s=T-1h m=5s
		=n m=5s s=now
		p check -> gone
		p lower to=5s -> gone`},
	{name: "lower: a claim stays", opts: conformGuarded, single: true, play: `
		! guard h=live s=T m=20s v=1 n=fresh
		p mark to=5s -> granted claim=mark
		=g h=live s=T m=20s v=1 n=fresh k=5s
		p lower to=5s -> granted
		=g h=live s=T m=5s v=1 n=fresh`},
	{name: "lower: where no longer lease is known, nothing is marked", opts: conformGuarded, play: `
		! guard h=live s=T-1h m=5s
		p mark to=10s -> granted
		=g h=live s=T-1h m=5s
		p mark to=20s -> granted
		=g h=live s=T-1h m=5s`},
	{name: "lower: not in quarantine, which lasts for what the request names", opts: conformGuarded, single: true, play: `
		! guard h=live s=T-6s m=3s
		p mark to=5s -> quarantined rest=T+4s-now
		=g h=live s=T-6s m=10s
		p lower to=5s -> gone
		=g h=live s=T-6s m=10s`, frozen: true},
	{name: "lower: a node without a record begins its quarantine", opts: conformGuarded, play: `
		p mark to=5s -> quarantined rest=10s
		=g h=live s=now m=10s`, frozen: true},
	{name: "lower: a node with the record of another history begins its quarantine", opts: conformGuarded, play: `
		! guard h=old s=0 m=20s
		p mark to=5s -> quarantined rest=20s
		=g h=live s=now m=20s`, frozen: true},
	{name: "lower: not before the replica lag is over", opts: conformLag, play: `
		! guard h=live s=T-11s m=10s
		p mark to=5s -> quarantined rest=T+1s-now`},
	{name: "lower: what names more takes the mark away", opts: conformGuarded, single: true, play: `
		! guard h=live s=T-1h m=20s
		p mark to=5s -> granted claim=mark
		a acquire -> granted token=wall expiry=now+10s
		=g h=live s=T-1h m=20s
		p lower to=5s -> gone
		=g h=live s=T-1h m=20s`},
	{name: "lower: so does a renewal that names more", opts: conformGuarded, single: true, play: `
		! guard h=live s=T-1h m=20s
		! set e=T+60s i=a f=7
		p mark to=5s -> granted claim=mark
		a renew token=7 confirmed=T+60s -> granted expiry=T+60s
		p lower to=5s -> gone
		=g h=live s=T-1h m=20s`},
	{name: "lower: what names no more leaves the mark", opts: conformGuarded, single: true, play: `
		! guard h=live s=T-1h m=20s
		p mark to=10s -> granted claim=mark
		a acquire -> granted token=wall expiry=now+10s
		=g h=live s=T-1h m=20s k=10s
		p lower to=10s -> granted
		=g h=live s=T-1h m=10s`},
	{name: "lower: a mark ends with the memory", opts: conformGuarded, single: true, play: `
		! guard h=live s=T-1h m=20s
		p mark to=10s -> granted claim=mark
		! guard h=old
		p check -> gone
		p lower to=10s -> gone
		a acquire -> quarantined rest=20s
		=g h=live s=now m=20s
		p lower to=10s -> gone
		=g h=live s=now m=20s`, frozen: true},
	{name: "lower: a node that was never marked stays", opts: conformGuarded, single: true, play: `
		! guard h=live s=T-1h m=20s
		p lower to=5s -> gone longest=20s
		=g h=live s=T-1h m=20s`},
	{name: "lower: another mark is another's", opts: conformGuarded, single: true, play: `
		! guard h=live s=T-1h m=20s
		p mark to=10s -> granted claim=mark
		! guard k=10s at=U-1
		p lower to=10s -> gone
		=g h=live s=T-1h m=20s k=10s`},
	{name: "lower: a mark that was left behind ends", opts: conformGuarded, play: `
		! guard h=live s=T-1h m=20s k=10s at=U-599999999
		a acquire -> granted token=wall expiry=now+10s
		=g h=live s=T-1h m=20s k=10s
		! guard k=10s at=U-600000001
		b acquire -> held rest=T+10s+1-now
		=g h=live s=T-1h m=20s`, frozen: true},
	{name: "lower: a mark is taken away", opts: conformGuarded, play: `
		! guard h=live s=T-1h m=20s k=10s at=U
		p unmark -> granted
		=g h=live s=T-1h m=20s
		p unmark -> granted
		=g h=live s=T-1h m=20s`},
	{name: "lower: without a record, there is no mark to take away", opts: conformGuarded, play: `
		p unmark -> granted
		=g none`},
	{name: "lower: not by a clock outside the window", opts: conformGuarded, play: `
		! guard h=live s=T-1h m=20s
		p mark to=5s wall=U-60000000 -> clock_skewed
		=g h=live s=T-1h m=20s`},
	{name: "lower: not on a replica, and not without a replication history", opts: conformGuarded, alone: true, play: `
		! guard h=live s=T-1h m=20s
		p mark nohistory to=5s -> unguarded
		! replica
		p mark to=5s -> replica
		p mark to=5s wall=U-60000000 -> replica
		=g h=live s=T-1h m=20s`},
}
