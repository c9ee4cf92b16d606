/* batch.pml -- requests that travel in batches: when a release may leave no tombstone, and what its answer proves.
 *
 * One node of several, and one process with two attempts, the second of which begins when the first has ended. Their requests wait in
 * one queue. What waits leaves together, as a flight: it is executed at one instant, and answered as one, late or never. FLIGHTS may be
 * under way, and overtake each other. Another process takes the node and gives it back; any lease may run out at any moment. No memory
 * is lost. A tombstone lasts as long as a request that it must stop may arrive: stamps.pml says why.
 *
 * The first attempt asks this node, or leaves it out because others are enough. Held by the votes of others, it may renew before this
 * node has answered. Its release is repeated, perhaps, when it was not answered. The second attempt asks, and is released.
 *
 * State of the node:    own    owner of the lease, 0 = none;  spent  its owner has given it back, only the name stays;  tomb  tombstones:
 *                       ENDED by a release, as far as anybody can tell, or REFUSED
 * State per attempt:    queue  requests that wait;  sent, known  requests that have left, and that were answered;  over  it has ended
 * State of a flight:    load   requests of each attempt;  at  FREE, AWAY, or DONE: the answer is under way;  says  what the node made of
 *                       a release
 * For the checks only:  gave   the attempt's release ended its lease;  last  whose release that was, if nothing happened since
 *
 * Rules
 *   Drop       In the step that ends an attempt its other requests leave the queue. Where nothing was sent, nothing is released.
 *   Tombstone  A release leaves one. With SPARE it does only where a request that may take the node was sent and not answered. With
 *              FOUND it leaves none where it finds the lease either, if nothing but the acquisition was sent: that has arrived.
 *   Spent      A release without a tombstone leaves the owner's name. By the name, or a tombstone that says ENDED, the node tells a release
 *              that comes again that its attempt was over here already.
 *   Refused    A tombstone says REFUSED where the first release of the attempt did not find it, if that release leaves a tombstone in any
 *              case. By it the node tells a release that comes again that the attempt had lost its lease before.
 *   Gone       Otherwise a node where the lease is not the attempt's answers GONE. Where another release of the attempt was sent, that
 *              is no loss: the other one may have ended the lease, and somebody was granted the key since.
 * Checked
 *   1. When all attempts have ended, and nothing waits or is under way, none of them has the node.
 *   2. An attempt whose release ended its lease is not told that it had lost it.
 *   3. A release that finds the node as the one before it left it is told so, while the tombstone lasts or the name stays.
 *   4. Where that release has left REFUSED, no other is told that it has ended the lease, while the tombstone lasts.
 *
 * Flags that change the rules, and hold
 *   -DSPARE, -DFOUND     see above
 *   -DONEFLIGHT          a flight leaves only when the one before was answered, or has timed out
 *   -DDOUBLED            a flight may be executed twice, as by a proxy that sends it again
 * Flags that break a rule, and must be refuted
 *   -DNEVER              no tombstones; also with ONEFLIGHT
 *   -DSPARE -DTIMEDOUT   a request that timed out counts as answered
 *   -DSPARE -DONLYACQ    only the acquisition has to be answered, not the renewal
 *   -DFOUND -DRENEWED    also if a renewal was sent; with ANSWERED only if that was answered
 *   -DFOUND -DDOUBLED    see above
 *   -DSPARE -DNODROP     requests of an ended attempt stay in the queue
 *   -DSPARE -DDOUBLED    see above
 *   -DUNNOTED            that requests are sent is noted later than they are taken from the queue
 *   -DSPARE -DNAMELESS   a release without a tombstone leaves no name
 *   -DGONELOST           GONE is a loss although another release was sent; also with SPARE
 *   -DONEBYTE            a tombstone does not say how its attempt ended; also with SPARE
 *   -DDOUBLED -DAGAINSURE  a release that is repeated leaves REFUSED, too
 *   -DSPARE -DFIRSTLOST  GONE is a loss in the answer to the first release, although that was repeated
 *
 * GONELOST: GONE may mean that an earlier release was there. A releases; the node ends the lease, and the answer is lost. B is
 * granted the key there. A repeats the release. Without a tombstone, or when it has ended, the node knows nothing of A any more and answers
 * GONE, as it would if A had lost the lease. So it says nothing, and the release stays unconfirmed. If nobody was granted the key, the node
 * still names A and says that it was over: the release is confirmed. A tombstone says so only as long as it lasts.
 */
#ifndef FLIGHTS
#define FLIGHTS 3
#endif
#define ACQ  1
#define REN  2
#define REL  4
#define REL2 8                         /* the release again */
#define BARE 16                        /* that release leaves no tombstone, */
#define BARE1 32                       /* or none where it finds the lease */
#define TAKES (ACQ | REN)              /* may take the node */
#define OTHER 3

#define FREE 0
#define AWAY 1
#define DONE 2
#define YES  1
#define GONE 2
#define REFUSAL 3
#define ENDED   1
#define REFUSED 2

byte own, last;
bit spent, gave[3], over[3];
byte tomb[3];                          /* by attempt: 0, ENDED, REFUSED */
bit missed[3];                          /* for the check: REFUSED was left, or had to be */
bit final[3];                          /* the attempt will do nothing more: what it knows is forgotten, to have fewer states */
byte queue[3], sent[3], known[3];      /* by attempt: 1, 2 */
byte at[FLIGHTS], load[2 * FLIGHTS], says[2 * FLIGHTS];
#define LOAD(s,a) load[2 * (s) + (a) - 1]
#define SAYS(s,a) says[2 * (s) + (a) - 1]
#define WAITING (queue[1] + queue[2] > 0)
bit busy;                              /* ONEFLIGHT: the last flight was neither answered nor has it timed out */
bit copied;                            /* DOUBLED: once */
bit picked;                            /* UNNOTED: flight 0 is about to leave */

#if defined(NEVER)
#define OPEN(a) false
#elif defined(SPARE)
#define OPEN(a) (sent[a] & REQUIRED & ~known[a])
#else
#define OPEN(a) true
#endif
#if defined(RENEWED)
#define ALONE(a) true
#elif defined(ANSWERED)
#define ALONE(a) (!(sent[a] & REN & ~known[a]))
#else
#define ALONE(a) (!(sent[a] & ~ACQ))
#endif
#ifdef ONLYACQ
#define REQUIRED ACQ
#else
#define REQUIRED TAKES
#endif

#ifdef ONEBYTE
#define NOTHERE ENDED
#else
#define NOTHERE REFUSED
#endif
#ifdef AGAINSURE
#define SURE(s,a) !(LOAD(s,a) & BARE1)
#else
#define SURE(s,a) !(LOAD(s,a) & (BARE1 | REL2))
#endif

/* ---- the node */
#define VACANT (own == 0 || spent)
inline take(x) { own = x; spent = 0; last = 0 }

inline release(s, a) {
  if :: LOAD(s,a) & BARE1 && own == a -> LOAD(s,a) = LOAD(s,a) | BARE :: else fi;
  if
  :: own == a && !spent ->
       gave[a] = 1; last = a; SAYS(s,a) = YES;
#ifdef NAMELESS
       own = 0
#else
       if :: LOAD(s,a) & BARE -> spent = 1 :: else -> own = 0 fi
#endif
  :: own == a && spent || own != a && tomb[a] == ENDED -> SAYS(s,a) = YES; assert(!missed[a])     /* AGAIN, 4 */
  :: own != a && tomb[a] == REFUSED -> SAYS(s,a) = REFUSAL; assert(last != a)       /* 3 */
  :: else -> SAYS(s,a) = GONE; assert(last != a)                                    /* 3 */
  fi;
  if
  :: LOAD(s,a) & BARE || tomb[a] -> skip
  :: else ->
       if :: SAYS(s,a) == GONE && SURE(s,a) -> missed[a] = 1; tomb[a] = NOTHERE :: else -> tomb[a] = ENDED fi
  fi
}
inline renew(a)   { if :: VACANT && own != a && !tomb[a] -> take(a) :: else fi }    /* its own lease is extended: nothing to see */
inline acquire(a) { if :: VACANT && own != a && !tomb[a] -> take(a) :: else fi }

/* Renewals and ends go first. */
inline execute(s) {
  if :: LOAD(s,1) & REN -> renew(1) :: else fi;
  if :: LOAD(s,1) & (REL | REL2) -> release(s,1) :: else fi;
  if :: LOAD(s,2) & REN -> renew(2) :: else fi;
  if :: LOAD(s,2) & (REL | REL2) -> release(s,2) :: else fi;
  if :: LOAD(s,1) & ACQ -> acquire(1) :: else fi;
  if :: LOAD(s,2) & ACQ -> acquire(2) :: else fi;
  at[s] = DONE
}

/* ---- the process */
inline hear(s, a) {
  if :: !final[a] -> known[a] = known[a] | LOAD(s,a) :: else fi;
  if
  :: SAYS(s,a) == REFUSAL -> assert(!gave[a])                                       /* 2 */
  :: SAYS(s,a) == GONE ->
#if defined(GONELOST)
       assert(!gave[a])                                                             /* 2 */
#elif defined(FIRSTLOST)
       assert(!gave[a] || LOAD(s,a) & REL2)
#else
       assert(!gave[a] || sent[a] & REL2)
#endif
  :: else
  fi
}
inline landed(s) {
  busy = 0;
#ifdef DOUBLED
  if :: !copied -> copied = 1; at[s] = AWAY :: at[s] = FREE fi;
#else
  at[s] = FREE;
#endif
  if :: at[s] == FREE -> LOAD(s,1) = 0; LOAD(s,2) = 0 :: else fi;
  SAYS(s,1) = 0; SAYS(s,2) = 0
}
#define KEPT(a) (final[a] -> REL2 : 255)
inline note(s) {
  sent[1] = (sent[1] | LOAD(s,1)) & KEPT(1); sent[2] = (sent[2] | LOAD(s,2)) & KEPT(2)
}
inline board(s) {
  LOAD(s,1) = queue[1]; LOAD(s,2) = queue[2]; queue[1] = 0; queue[2] = 0
}
#ifdef ONEFLIGHT
#define MAYLEAVE (!busy)
#define LEFT busy = 1
#else
#define MAYLEAVE true
#define LEFT skip
#endif

proctype Flight(byte s) {
  do
#ifdef UNNOTED
  :: atomic { at[s] == FREE && WAITING && MAYLEAVE && !picked -> board(s); picked = 1 };
     atomic { note(s); picked = 0; at[s] = AWAY; LEFT }
#else
  :: atomic { at[s] == FREE && WAITING && MAYLEAVE && (s == 0 || at[s-1] != FREE) -> board(s); note(s); at[s] = AWAY; LEFT }
#endif
  :: atomic { at[s] == AWAY -> execute(s) }
  :: atomic { at[s] == DONE -> hear(s, 1); hear(s, 2); landed(s) }
  :: atomic { at[s] == DONE -> landed(s) }                                          /* the answer is lost */
#ifdef TIMEDOUT
  :: atomic { at[s] != FREE && !final[1] -> known[1] = known[1] | LOAD(s,1) }
  :: atomic { at[s] != FREE && !final[2] -> known[2] = known[2] | LOAD(s,2) }
#endif
  od
}
proctype Timeout() {
  do
  :: atomic { busy -> busy = 0 }
  od
}

inline releasing(a, what) {
  if
#ifdef FOUND
  :: (OPEN(a)) && ALONE(a) -> queue[a] = queue[a] | what | BARE1
  :: (OPEN(a)) && !ALONE(a) -> queue[a] = queue[a] | what
#else
  :: OPEN(a) -> queue[a] = queue[a] | what
#endif
#if defined(SPARE) || defined(NEVER)
  :: else -> queue[a] = queue[a] | what | BARE
#endif
  fi
}
proctype Attempt(byte a) {
  a == 1 || over[1];
  if :: atomic { queue[a] = ACQ } :: a == 1 -> skip fi;
  if :: atomic { a == 1 -> queue[a] = queue[a] | REN } :: skip fi;
  atomic {
    over[a] = 1;
#ifdef NODROP
    if :: sent[a] | queue[a] -> releasing(a, REL) :: else fi
#else
    queue[a] = 0;
    if :: sent[a] -> releasing(a, REL) :: else fi
#endif
  };
  if
  :: atomic { a == 1 && sent[a] & REL && !(known[a] & REL) -> releasing(a, REL2); final[a] = 1; known[a] = 0; sent[a] = sent[a] & REL2 }
  :: atomic { final[a] = 1; known[a] = 0; sent[a] = 0 }
  fi
}

#ifdef DOUBLED
#define OUTLIVED 255
#else
#define OUTLIVED TAKES
#endif
#define IDLE(a) !(TAKES & queue[a] || OUTLIVED & (LOAD(0,a) | LOAD(1,a) | LOAD(FLIGHTS-1,a)))
inline forget(a) { tomb[a] = 0; missed[a] = 0; if :: last == a && own == 0 -> last = 0 :: else fi }

proctype Other() {
  do
  :: atomic { own != OTHER -> take(OTHER) }                                         /* the lease has run out, if there was one */
  :: atomic { own == OTHER -> own = 0; last = 0 }
  :: atomic { tomb[1] && IDLE(1) -> forget(1) }
  :: atomic { tomb[2] && IDLE(2) -> forget(2) }
  od
}

#define QUIET (!WAITING && !picked && at[0] == FREE && at[1] == FREE && at[FLIGHTS - 1] == FREE)
proctype End() {
  atomic { over[1] && over[2] && QUIET -> assert(VACANT || own == OTHER) }          /* 1 */
}

init { atomic {
  byte s;
  for (s : 0 .. FLIGHTS - 1) { run Flight(s) }
  s = 0;
  run Attempt(1); run Attempt(2); run Other(); run End();
#ifdef ONEFLIGHT
  run Timeout()
#endif
} }
