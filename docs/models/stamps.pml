/* stamps.pml -- what requests that travel in batches see of clocks, of the guard, and of a tombstone.
 *
 * One node, whose vote decides. Attempt A asks it once, in a batch with others. Another process asks for the same key again and again.
 * A batch waits, leaves, and is executed without interruption, but all of that takes time, which may pass between any two steps. True
 * time is that of the clients. The node's clock differs from it by up to STEP ticks, and steps within that as it likes.
 *   LOSS  the node loses its memory, once. Connections do not survive that, nor does what is under way on them.
 *   ENDS  A may end at any moment, and its release leaves a tombstone; the clock is never off by more than the window, and nobody else
 *         is there. batch.pml takes from here that tombstones last as long as they must.
 *
 * State of the node:    own, e  owner of the lease and its end;  tomb, tombEnd  tombstone of A;  young, since  the guard record: memory
 *                       was lost, and when that was noticed;  n  the clock, as the batch under way read it
 * State of A:           t0  when it asked: trust starts here;  wall  the stamp of its batch;  ended;  holds
 *                       away, rel, gone  its request is under way, its release is, its release has been there
 * State of the other:   wall2, away2  likewise
 *
 * Rules
 *   Stamp     A batch is stamped when it leaves, after the trust of every request in it has begun. A node whose clock differs from the
 *             stamp by more than the window W refuses the batch; W = 0: it does not look.
 *   Head      Clock and guard are read once for a batch, at its head: neither before nor again.
 *   Boarding  A request whose attempt has ended is not sent. That is looked at after the stamp was read, so no stamp is later than the
 *             end of its attempt. A tombstone lasts until the window refuses such stamps. (Keys do not expire while a script runs.)
 *   Trust     lasts from t0 for the lease less what the window lets clocks differ.
 * Checked
 *   1. The other process is not granted the key while A is trusted.
 *   2. A does not take the node when its release has been there (ENDS).
 *
 * Flags that break a rule, and must be refuted
 *   -DEARLYSTAMP         a batch is stamped when the first request gets into it
 *   -DREREAD             the stamp is judged at the head, but each request reads the clock for itself
 *   -DLOSS -DOLDGUARD    the guard is read once for all batches of a process
 *   -DW=0 -DSTEP=0 -DOLDTIME   the clock, likewise (with a window it would be noticed)
 *   -DENDS -DCHECKFIRST  boarding looks whether the attempt has ended, and reads the stamp after that
 *   -DENDS -DNOCHECK     requests of an ended attempt are sent
 *   -DENDS -DLIFE=4      a tombstone ends too early: a clock that jumps ahead by twice the window, and back, ends it
 *   -DLOSS -DOLDSTAMP    a limit: the first batch after the loss was stamped before it, and the clock is off by more than the window
 */
#ifndef W
#define W 1
#endif
#ifdef ENDS
#define STEP W
#define MAX 8
#endif
#ifndef STEP
#define STEP (W + 2)
#endif
#ifndef LIFE
#define LIFE (4 * W + 1)
#endif
#ifndef MAX
#define MAX 6
#endif
#define LEASE 4
#define VALIDITY (LEASE - 2 * W)
#define A 1
#define OTHER 2

byte now;                              /* true time */
byte off = STEP;                       /* the node's clock is ahead by off - STEP */
#define TRUE (now + STEP)              /* true time, as stamps and leases are written */
#define CLOCK (now + off)

byte own, e, tombEnd, since;
bit tomb, young, lost;
byte t0, wall, wall2;
bit asked, ended, holds, away, away2, rel, gone;
#define TRUSTED (holds && now < t0 + VALIDITY)
#define QUARANTINED (young && n < since + LEASE)
#define REFUSED(stamp) (W > 0 && (n > stamp + W || stamp > n + W))

#ifdef REREAD
#define READ n = CLOCK
#else
#define READ skip
#endif

proctype Attempt() {
#ifdef EARLYSTAMP
  atomic { wall = TRUE };
#endif
  atomic { t0 = now; asked = 1 };      /* it waits in the queue */
#ifdef CHECKFIRST
  atomic { !ended };
#endif
#ifndef EARLYSTAMP
  atomic { wall = TRUE };              /* the batch leaves */
#endif
#if !defined(CHECKFIRST) && !defined(NOCHECK)
  atomic { !ended };
#endif
  away = 1
}

proctype Ender() {
  atomic { asked -> ended = 1; holds = 0; rel = 1 }
}

proctype Others() {
  do
  :: atomic { !away2 -> wall2 = TRUE; away2 = 1 }
  od
}

inline head(stamp) {
  n = CLOCK;
  ok = !REFUSED(stamp);
  if
  :: ok && lost && !young -> young = 1; since = n
  :: else
  fi;
  ok = ok && !QUARANTINED
}

proctype Node() {
  byte n, kept;
  bit ok, read, blocked;
#ifdef OLDTIME
  atomic { !asked -> kept = CLOCK };   /* a batch of A's process was here before */
#endif
  do
  :: atomic { away -> away = 0; blocked = tomb && CLOCK < tombEnd; head(wall) };
#ifdef OLDTIME
     n = kept;
#endif
     atomic { READ;                    /* requests before it took their time */
       if
       :: ok && (own != OTHER || n > e) && !blocked ->
            own = A; e = n + LEASE; holds = !ended;
            assert(!gone)                                                           /* 2 */
       :: else
       fi;
       n = 0; ok = 0; blocked = 0 }
  :: atomic { away2 -> away2 = 0;
#ifdef OLDGUARD
       if :: read -> n = CLOCK; ok = !REFUSED(wall2) :: else -> head(wall2); read = 1 fi;
#else
       head(wall2);
#endif
       wall2 = 0 };
     atomic { READ;
       if
       :: ok && (own != A || n > e) -> assert(!TRUSTED); own = OTHER; e = n + LEASE     /* 1 */
       :: else
       fi;
       n = 0; ok = 0 }
  :: atomic { rel -> rel = 0; gone = 1; tomb = 1; tombEnd = CLOCK + LIFE; if :: own == A -> own = 0; e = 0 :: else fi }
  :: atomic { tomb && CLOCK >= tombEnd -> tomb = 0; tombEnd = 0 }
  :: atomic { own == OTHER -> own = 0; e = 0 }
#ifdef LOSS
  :: atomic { !lost -> lost = 1; own = 0; e = 0; tomb = 0; tombEnd = 0; away = 0;
#ifndef OLDSTAMP
       away2 = 0; wall2 = 0
#endif
     }
#endif
  od
}

proctype Clock() {
  do
  :: atomic { now < MAX -> now++ }
#if STEP > 0
  :: atomic { off > 0 -> off-- }       /* it steps */
  :: atomic { off < 2 * STEP -> off++ }
#endif
  od
}

init { atomic {
  run Attempt(); run Node(); run Clock();
#ifdef ENDS
  run Ender()
#else
  run Others()
#endif
} }
