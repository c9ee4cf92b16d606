package core

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/lockkit/lockkit/internal/race"
	"github.com/lockkit/lockkit/testutil"
)

// A conformanceCase is a part of the contract of the scripts. Every kind of node must play it alike. For its language
// see scene. The Locker has a TTL of 10s, a clock window of 500ms and tombstones of 3s.
type conformanceCase struct {
	name   string
	opts   []Option
	play   string
	single bool // not sent twice, because a copy of a request would be another step
	frozen bool // needs an exact millisecond or time that passes, so it does not run on a real server, whose clock runs
	alone  bool // affects the whole server
}

var (
	conformGuarded  = []Option{WithRestartGuard(true)}
	conformLag      = []Option{WithRestartGuard(true), WithReplicaLag(2 * time.Second)}
	conformNoWindow = []Option{WithClockWindow(0)}
)

var conformance = slices.Concat(conformanceAcquire, conformanceGuard, conformanceLower, conformanceRenew, conformanceRelease, conformanceComplete, conformanceQueue, conformanceRevoke, conformanceEnds)

func TestConformanceEmbedded(t *testing.T) {
	t.Parallel()
	race.SkipSweep(t)
	for _, c := range conformance {
		for _, way := range []delivery{alone, twice, inBatch} {
			if way == twice && c.single {
				continue
			}
			t.Run(fmt.Sprintf("%s, %v", c.name, way), func(t *testing.T) {
				t.Parallel()
				embeddedScene(t, c, way)
			})
		}
	}
}

func TestConformanceRedis(t *testing.T) {
	t.Parallel()
	shared := testutil.NewServers(t, 1)[0]
	for i, c := range conformance {
		for _, way := range []delivery{alone, inBatch} {
			if c.frozen {
				continue
			}
			t.Run(fmt.Sprintf("%s, %v", c.name, way), func(t *testing.T) {
				t.Parallel()
				server := shared
				if c.alone {
					server = testutil.NewServers(t, 1)[0]
				}
				redisScene(t, c, way, server, fmt.Sprintf("conformance-%d-%d:", i, way))
			})
		}
	}
}

var conformanceAcquire = []conformanceCase{
	{name: "acquire: free", play: `
		a acquire -> granted token=wall expiry=now+10s
		= e=now+10s i=a f=a ttl=24h+10s
		=x`},
	{name: "acquire: held", play: `
		! set e=T+60s i=b f=7 ttl=1h
		a acquire -> held rest=T+60s+1-now
		= e=T+60s i=b f=7
		=x`},
	{name: "acquire: held to the last millisecond", frozen: true, play: `
		! set e=T i=b f=7
		a acquire -> held rest=1
		= e=T i=b f=7`},
	{name: "acquire: spent to the millisecond", frozen: true, play: `
		! set e=T-1 i=b f=7
		a acquire -> granted token=wall expiry=now+10s`},
	{name: "acquire: own duplicate, late", play: `
		! set e=T+3s i=a f=1812345678901234 p=1812345678901233
		a acquire -> granted token=1812345678901234 expiry=T+3s
		= e=T+3s i=a f=1812345678901234 p=1812345678901233`},
	{name: "acquire: own duplicate, later than the lease", play: `
		! set e=T-1 i=a f=12345 p=9
		a acquire -> gone
		= e=T-1 i=a f=12345 p=9`},
	{name: "acquire: own, where a renewal has taken the node before", play: `
		a renew token=7 confirmed=0 -> granted expiry=now+10s
		a acquire -> gone
		= e=now+10s i=a f=7`, frozen: true},
	{name: "acquire: notes what the counter was", play: `
		! set f=U+9000000
		a acquire -> granted token=U+9000001 expiry=now+10s
		= e=now+10s i=a f=U+9000001 p=U+9000000`},
	{name: "acquire: spent lease taken over", play: `
		! set e=T-1 i=b f=U+9000000
		a acquire -> granted token=U+9000001 expiry=now+10s
		= e=now+10s i=a f=a ttl=24h+10s
		b renew token=U+9000000 confirmed=T-1 -> gone
		b release -> gone
		= e=now+10s i=a f=a`, frozen: true},
	{name: "acquire: after the attempt is over", play: `
		a release -> gone
		a acquire -> gone
		= none
		=x a=3s
		b acquire -> granted token=wall expiry=now+10s
		= e=now+10s i=b f=b`},
	{name: "acquire: the tombstone outlives the clock window", frozen: true, play: `
		a release -> gone
		! sleep 2s
		a acquire wall=U -> clock_skewed
		! sleep 999ms
		a acquire -> gone
		! sleep 1ms
		a acquire -> granted token=wall expiry=now+10s`},
	{name: "acquire: clock window, client ahead", play: `
		a acquire wall=U+60000000 -> clock_skewed
		= none`},
	{name: "acquire: clock window, client behind", play: `
		! set e=T-5s i=b f=7
		a acquire wall=U-60000000 -> clock_skewed
		= e=T-5s i=b f=7
		=x`},
	{name: "acquire: clock window, to the microsecond", frozen: true, play: `
		a acquire wall=U+500001 -> clock_skewed
		a acquire wall=U-500001 -> clock_skewed
		= none
		a acquire wall=U-500000 -> granted token=U-500000 expiry=now+10s
		a release -> granted
		b acquire wall=U+500000 -> granted token=U+500000 expiry=now+10s`},
	{name: "acquire: clock window comes before the guard", opts: conformGuarded, play: `
		a acquire wall=U+60000000 -> clock_skewed
		=g none`},
	{name: "acquire: token above the counter although the clock is ahead of it", play: `
		! set f=U-5000000
		a acquire -> granted token=wall expiry=now+10s`},
	{name: "acquire: token bumps over a counter ahead of the clock", play: `
		! set f=U+3600000000
		a acquire -> granted token=U+3600000001 expiry=now+10s
		= e=now+10s i=a f=U+3600000001 ttl=24h+10s`},
	{name: "acquire: a counter ahead of the clock lives longer", frozen: true, play: `
		! set f=U+172800000000
		a acquire -> granted token=U+172800000001 expiry=now+10s
		= e=now+10s i=a f=a ttl=48h+3h`},
	{name: "acquire: client clock far ahead is clamped to a quarter of the max TTL", opts: conformNoWindow, play: `
		a acquire wall=U+3600000000 -> granted token=us+2500000 expiry=now+10s
		= e=now+10s i=a f=a`},
	{name: "acquire: client clock far behind is clamped", opts: conformNoWindow, play: `
		a acquire wall=5 -> granted token=us-2500000 expiry=now+10s
		= e=now+10s i=a f=a`},
	{name: "acquire: clamp to the microsecond, of the max TTL", opts: []Option{WithClockWindow(0), WithMaxTTL(20 * time.Second)}, frozen: true, play: `
		a acquire wall=U+4999999 -> granted token=U+4999999 expiry=now+10s
		a release -> granted
		b acquire wall=U+5000001 -> granted token=U+5000000 expiry=now+10s
		b release -> granted
		! set f=0
		c acquire wall=U-5000001 -> granted token=U-5000000 expiry=now+10s`},
	{name: "acquire: tokens of 16 digits are exact", frozen: true, play: `
		! set f=1800000000000000
		a acquire -> granted token=1800000000000001 expiry=now+10s
		= e=now+10s i=a f=1800000000000001
		! set e=T-1 i=b f=1812345678901233
		a acquire -> granted token=1812345678901234 expiry=now+10s`},
	{name: "acquire: the greatest token", play: `
		! set f=9007199254740990
		a acquire -> granted token=9007199254740991 expiry=now+10s
		= e=now+10s i=a f=9007199254740991
		a release -> granted`},
	{name: "carried: shown to those that wait", play: `
		a acquire carry=00-trace-01 -> granted token=wall expiry=now+10s
		= e=now+10s i=a f=a c=a:00-trace-01 ttl=24h+10s
		! set e=T+60s
		b acquire carry=other -> held rest=T+60s+1-now carried=00-trace-01
		= e=T+60s i=a f=a c=a:00-trace-01`},
	{name: "carried: goes with the lease", play: `
		a acquire carry=text -> granted token=wall expiry=now+10s
		a release -> granted
		= f=a
		b acquire carry=other -> granted token=>a expiry=now+10s
		= e=now+10s i=b f=b c=b:other
		b complete ballot=b origin=b -> granted
		= f=b ballot=b kept=now+24h origin=b`},
	{name: "carried: never what an older holder brought", play: `
		! set e=T-1 i=b f=7 c=b:text
		a acquire -> granted token=wall expiry=now+10s
		= e=now+10s i=a f=a
		! set e=T+60s
		c acquire -> held rest=T+60s+1-now
		a renew token=a confirmed=now+10s -> granted expiry=T+60s
		c acquire -> held rest=T+60s+1-now`},
	{name: "carried: not with a lease that was brought back", play: `
		! set e=T-1 i=b f=5 c=b:text
		a renew token=7 confirmed=T+60s -> healed expiry=now+10s
		! set e=T+60s
		c acquire -> held rest=T+60s+1-now`},
	{name: "carried: with a lease that was brought back, where the renewal brings it along", play: `
		! set e=T-1 i=b f=5 c=b:text
		a renew token=7 confirmed=T+60s carry=mine -> healed expiry=now+10s
		! set e=T+60s
		c acquire -> held rest=T+60s+1-now carried=mine`},
	{name: "carried: what a lease has it keeps, whatever a renewal brings along", play: `
		a acquire carry=00-trace-01 -> granted token=wall expiry=now+10s
		! set e=T+60s
		a renew token=a confirmed=now+10s carry=mine -> granted expiry=T+60s
		c acquire -> held rest=T+60s+1-now carried=00-trace-01`},
	{name: "carried: not with a cooldown", play: `
		! set e=T+59s i=a f=7 c=a:text
		a release cooldown=60s -> granted
		! set e=T+60s
		b acquire -> held rest=T+60s+1-now`},
	{name: "done: shown to everybody, changed by nobody", play: `
		! set f=9 ballot=8 kept=T+60s origin=5 result=binary ttl=1h
		a acquire -> done ballot=8 token=0 kept=T+60s-now origin=5 result=binary
		b acquire -> done ballot=8 kept=T+60s-now origin=5 result=binary
		= f=9 ballot=8 kept=T+60s origin=5 result=binary
		=x`},
	{name: "done: a live lease comes first", play: `
		! set e=T+59s i=b f=9 ballot=8 kept=T+60s origin=5
		a acquire -> held rest=T+59s+1-now`},
	{name: "done: until the end of the retention", frozen: true, play: `
		! set f=9 ballot=8 kept=T+1 origin=8
		a acquire -> done ballot=8 kept=1 origin=8
		! sleep 1ms
		a acquire -> granted token=wall expiry=now+10s`},
	{name: "recovery: granted beside the record", play: `
		! set f=9 ballot=8 kept=T+48h origin=5 result=text
		a acquire recover -> granted token=wall expiry=now+10s ballot=8 kept=T+48h-now origin=5 result=text
		= e=now+10s i=a f=a ballot=8 kept=T+48h origin=5 result=text ttl=50h
		a acquire recover -> granted token=a expiry=now+10s ballot=8 kept=T+48h-now origin=5 result=text`, frozen: true},
	{name: "recovery: a short record does not shorten the lease", play: `
		! set f=9 ballot=8 kept=T+60s origin=5 result=space
		a acquire recover -> granted token=wall expiry=now+10s ballot=8 kept=T+60s-now origin=5 result=space
		= e=now+10s i=a f=a ballot=8 kept=T+60s origin=5 result=space ttl=24h+10s`},
	{name: "recovery: not over a live lease", play: `
		! set e=T+59s i=b f=9 ballot=8 kept=T+60s origin=5
		a acquire recover -> held rest=T+59s+1-now`},
	{name: "recovery: not after the attempt is over", play: `
		! set f=9 ballot=8 kept=T+60s origin=5
		a release -> gone
		a acquire recover -> gone
		= f=9 ballot=8 kept=T+60s origin=5`},
	{name: "recovery: a spent record is not shown", play: `
		! set f=9 ballot=8 kept=T-1 origin=5
		a acquire recover -> granted token=wall expiry=now+10s`},
}

var conformanceGuard = []conformanceCase{
	{name: "guard: first contact", opts: conformGuarded, play: `
		a acquire -> quarantined rest=10s
		=g h=live s=now m=10s
		= none
		=x`},
	{name: "guard: in quarantine", opts: conformGuarded, play: `
		! guard h=live s=T+60s-10s m=10s
		a acquire -> quarantined rest=T+60s-now
		a acquire recover -> quarantined rest=T+60s-now
		=g h=live s=T+60s-10s m=10s
		= none`},
	{name: "guard: quarantine ends", opts: conformGuarded, play: `
		! guard h=live s=T-1-10s m=10s
		a acquire -> granted token=wall expiry=now+10s
		=g h=live s=T-1-10s m=10s`},
	{name: "guard: quarantine ends to the millisecond", opts: conformGuarded, frozen: true, play: `
		a acquire -> quarantined rest=10s
		! sleep 9999ms
		a acquire -> quarantined rest=1
		! sleep 1ms
		a acquire -> granted token=wall expiry=now+10s`},
	{name: "guard: another history in the record", opts: conformGuarded, play: `
		! guard h=old s=0 m=10s
		! set e=T-1 i=b f=7
		a acquire -> quarantined rest=10s
		=g h=live s=now m=10s
		= e=T-1 i=b f=7`},
	{name: "guard: flushed", opts: conformGuarded, alone: true, play: `
		! guard h=live s=0 m=10s
		a acquire -> granted token=wall expiry=now+10s
		! flush
		b acquire -> quarantined rest=10s
		=g h=live s=now m=10s`},
	{name: "guard: promoted", opts: conformGuarded, alone: true, play: `
		! guard h=live s=0 m=10s
		a acquire -> granted token=wall expiry=now+10s
		! replica
		b acquire -> replica
		a renew token=a confirmed=now+10s -> replica
		a complete ballot=a origin=a -> replica
		! promote
		b acquire -> quarantined rest=10s
		=g h=live s=now m=10s
		a renew token=a confirmed=now -> quarantined rest=10s
		a renew token=a confirmed=now+9s -> healed expiry=now+10s`, frozen: true},
	{name: "guard: a replica is told nothing", opts: conformGuarded, alone: true, play: `
		! guard h=live s=T m=10s v=1
		! replica
		a acquire -> replica
		p provision -> replica
		p provision wall=U-60000000 -> replica
		= none
		=g h=live s=T m=10s v=1`},
	{name: "guard: a longer lease that becomes known is waited for, from the beginning of the memory", opts: conformGuarded, frozen: true, play: `
		! guard h=live s=T-6s m=5s
		a acquire -> quarantined rest=4s
		=g h=live s=T-6s m=10s
		! sleep 4s
		a acquire -> granted token=wall expiry=now+10s`},
	{name: "guard: the longest lease is told", opts: conformGuarded, play: `
		! guard h=live s=T-1h m=20s
		a acquire -> granted token=wall expiry=now+10s longest=20s
		a renew token=a confirmed=now+10s -> granted expiry=now+10s longest=20s
		b acquire -> held rest=10s+1 longest=20s
		a complete ballot=a origin=a -> granted longest=20s
		b acquire -> done ballot=a kept=24h origin=a longest=20s
		=g h=live s=T-1h m=20s`, frozen: true},
	{name: "guard: a record without the beginning of its memory is none", opts: conformGuarded, play: `
		! guard h=live m=10s
		a acquire -> quarantined rest=10s
		=g h=live s=now m=10s`},
	{name: "guard: declared new, until the node forgets", opts: conformGuarded, play: `
		! guard h=live s=T m=10s v=1
		a acquire -> granted token=wall expiry=now+10s
		! guard h=old
		b acquire -> quarantined rest=10s
		=g h=live s=now m=10s`},
	{name: "guard: a greater max TTL stays, and is waited for", opts: conformGuarded, play: `
		! guard h=live s=T-1-30s m=30s
		a acquire -> granted token=wall expiry=now+10s
		=g h=live s=T-1-30s m=30s
		! guard h=old
		b acquire -> quarantined rest=30s
		=g h=live s=now m=30s`},
	{name: "guard: the replica lag is waited for", opts: conformLag, play: `
		a acquire -> quarantined rest=12s
		=g h=live s=now m=10s`},
	{name: "guard: server without a replication history", opts: conformGuarded, play: `
		a acquire nohistory -> unguarded
		a renew nohistory token=5 confirmed=T+60s -> unguarded
		a complete nohistory ballot=5 origin=5 -> unguarded
		p provision nohistory -> unguarded
		= none
		=g none
		=x`},
	{name: "guard: off, nothing is asked", play: `
		a acquire nohistory -> granted token=wall expiry=now+10s
		=g none`},
	{name: "provision: claimed first, then declared new", opts: conformGuarded, play: `
		p provision -> quarantined claim=fresh
		=g h=live s=now m=10s n=fresh
		a acquire -> quarantined rest=10s
		p provision claim=other -> quarantined claim=fresh
		p provision claim=fresh -> granted claim=fresh
		=g h=live s=now m=10s n=fresh v=1
		p provision -> granted claim=fresh
		a acquire -> granted token=wall expiry=now+10s
		=g h=live s=now m=10s v=1
		p provision -> granted`, frozen: true},
	{name: "provision: a claim ends with what the node remembers", opts: conformGuarded, alone: true, play: `
		p provision -> quarantined claim=fresh
		! flush
		a acquire -> quarantined rest=10s
		p provision claim=fresh -> quarantined rest=10s
		=g h=live s=now m=10s`, frozen: true},
	{name: "provision: a node that was waited for and used is not new", opts: conformGuarded, frozen: true, play: `
		p provision -> quarantined claim=fresh
		! sleep 10s
		p provision -> granted claim=fresh
		a acquire -> granted token=wall expiry=now+10s
		p provision -> granted
		p provision claim=fresh -> granted
		=g h=live s=T m=10s`},
	{name: "provision: not by a clock outside the window", opts: conformGuarded, play: `
		p provision wall=U+60000000 -> clock_skewed
		=g none`},
	{name: "provision: a node that was renewed or completed on is in use", opts: conformGuarded, frozen: true, play: `
		! guard h=live s=T-60s m=10s n=fresh
		a renew token=7 confirmed=0 -> granted expiry=now+10s
		=g h=live s=T-60s m=10s
		! guard n=fresh
		b complete ballot=9 origin=9 -> gone
		=g h=live s=T-60s m=10s n=fresh
		! set e=T-1
		b complete ballot=9 origin=9 -> granted
		=g h=live s=T-60s m=10s`},
	{name: "guard: nobody uses a lease of more than a day", opts: conformGuarded, play: `
		! guard h=live s=T-60s m=1000000000000
		a acquire -> quarantined rest=T-60s+86400000-now longest=24h`},
	{name: "provision: a known node waits on", opts: conformGuarded, play: `
		! guard h=live s=T+30s m=30s
		p provision -> quarantined rest=T+60s-now
		p provision claim=fresh -> quarantined rest=T+60s-now
		=g h=live s=T+30s m=30s`},
	{name: "provision: a node that votes", opts: conformGuarded, play: `
		! guard h=live s=T-31s m=30s
		p provision -> granted
		=g h=live s=T-31s m=30s`},
	{name: "provision: a node that lost its memory waits on", opts: conformGuarded, play: `
		! guard h=old s=0 m=10s
		p provision -> quarantined rest=10s
		=g s=0 m=10s h=0123456789012345678901234567890123456789
		a acquire -> quarantined rest=10s`},
}
