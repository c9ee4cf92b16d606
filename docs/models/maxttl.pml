/* maxttl.pml -- two processes with different max TTLs, and nodes that lose their memory.  N = 3, q = 2.
 *
 * A node that lost its memory is in quarantine until every lease it may have forgotten is over. How long that takes, only
 * requests can tell it. Process 1, with leases of LONG ticks, was granted the key on two or three nodes when the run begins.
 * Process 2, with leases of one tick, asks for it, any number of times.
 * State per node: owner of the lease and ticks left of it; whether there is a guard record, the ticks since it was written, and
 * the greatest max TTL that requests have brought since.
 *
 * Rules
 *   The quarantine ends at the beginning of the memory plus the greatest max TTL brought since, however late it was brought.
 *   Each reply shows the greatest value the node knows; a process sends the greatest one it ever heard of. A process that
 *   was restarted knows its own value only.
 *   An attempt that heard of a greater value than its requests carried does not count.
 * Assumption: process 2 has heard of the greater value when it counts its votes, from an earlier reply or in this attempt; or
 * an operator has lowered it on all nodes, or marked and looked at all, and nobody has named the greater value since.
 * Checked: process 2 is not granted the key while process 1 is trusted.
 *
 *   -DLOWER      an operator lowers the value to 1, in three steps, each of which takes all nodes before the next. First a node
 *                is named the greater value and marked; a node in quarantine is not. A request that names the greater value
 *                takes the mark away, and so does a loss of memory. Then each node is looked at: none may have a lease with
 *                more than a tick left, and all must be marked still. Then the value is lowered on each node that is marked
 *                still; where one is not, the operator gives up
 *   -DAGAIN      process 1 may be granted the key at any time; when the run begins, nobody has it
 *   -DCOARSE     a step of the operator takes all nodes at once, and so does process 1 when it asks
 *   -DLOSSES=n   so many losses of memory
 *
 * Flags, each of which must be refuted
 *   -DOWNMAX     a process sends its own max TTL, whatever it heard
 *   -DFIRST      the quarantine is fixed by the value that the first request brought
 *   -DCOUNTALL   an attempt counts although it heard of a greater value than its requests carried
 *   -DUNHEARD    without the assumption: the limit that the guarantees state
 *   -DLOWER -DNOWAIT         a node is marked although it is in quarantine
 *   -DLOWER -DUNSEEN         nodes are not looked at
 *   -DLOWER -DUNCHECKED      the value is lowered on a node although another may have lost its memory before it was looked at
 *   -DLOWER -DAGAIN -DKEPT   a mark stays although the greater value is named
 *   -DLOWER -DAGAIN -DSHARED another operator marks nodes, too, and the marks of both are the same
 */
#ifndef LONG
#define LONG 3
#endif
#define BIT(n)   (1 << (n))
#define MAX(x,y) ((x) > (y) -> (x) : (y))

byte own[3], rem[3];
bit  record[3], mark[3];
byte since[3], longest[3];
bit  calm;                             /* the value is lowered on node 0, and nobody has named the greater one since */
byte unused;                           /* 1: all nodes were marked, and nobody has named the greater value since; 2: and looked at,
                                          or the value was lowered on all, and nobody has named the greater one since the first */
byte step;                             /* of the operator, who takes three nodes in each of three */
bit  done[3];
byte heard = 1;                        /* greatest max TTL that process 2 knows */
#ifdef AGAIN
byte trust;                            /* of process 1 */
#else
byte trust = LONG;
#endif
byte age = 1;                          /* of process 2's attempt */
bit  fresh;                            /* process 1 has begun to ask in this tick */
#ifdef FIRST
byte fixed[3];                         /* length of the quarantine */
#define QUARANTINED(n) (since[n] < fixed[n])
#define FIX(n,x) fixed[n] = x
#else
#define QUARANTINED(n) (since[n] < longest[n])
#define FIX(n,x) skip
#endif
#ifdef OWNMAX
#define SENT 1
#else
#define SENT sent
#endif
#ifdef COUNTALL
#define COUNTS true
#else
#define COUNTS (SENT == heard)
#endif
#ifdef UNHEARD
#define INFORMED true
#else
#define INFORMED (heard == LONG || unused == 2)
#endif

#ifdef KEPT
#define UNMARK(n) skip
#else
#define UNMARK(n) mark[n] = 0
#endif
#ifdef NOWAIT
#define VOTES(n) true
#else
#define VOTES(n) (!QUARANTINED(n))
#endif
#ifdef UNSEEN
#define SHORT(n) true
#else
#define SHORT(n) (own[n] != 1 || rem[n] <= 1)
#endif

#ifdef LOSSES
byte losses;
#define LOSS losses < LOSSES -> losses++;
#else
#define LOSS
#endif

#ifdef UNCHECKED
#define MARKED(n) true
#else
#define MARKED(n) mark[n]
#endif

inline guard(x) {
  if
  :: !record[n] -> record[n] = 1; since[n] = 0; longest[n] = x; mark[n] = 0; FIX(n,x)
  :: else -> longest[n] = MAX(longest[n], x)
  fi;
  if :: x == LONG -> UNMARK(n); unused = 0; calm = 0 :: else fi
}

inline acquire() {
  asked = asked | BIT(n);
  guard(SENT);
  if
  :: !QUARANTINED(n) && own[n] != 1 -> own[n] = 2; rem[n] = 1; yes = 1
  :: else -> yes = 0
  fi;
  if :: granted = granted + yes; heard = MAX(heard, longest[n]) :: skip fi;    /* or the reply is lost */
  yes = 0
}

proctype Short() {
  byte n, asked, granted, sent, yes;
  do
  :: atomic { if :: skip :: heard = 1 fi; sent = heard; asked = 0; granted = 0; age = 0 };
     do
     :: atomic { !(asked & 1) -> n = 0; acquire(); n = 0 }
     :: atomic { !(asked & 2) -> n = 1; acquire(); n = 0 }
     :: atomic { !(asked & 4) -> n = 2; acquire(); n = 0 }
#ifdef OWNMAX
     :: atomic { granted >= 2 && age == 0 && INFORMED -> assert(trust == 0); break }
#else
     :: atomic { granted >= 2 && age == 0 && COUNTS && INFORMED -> assert(trust == 0); break }
#endif
     :: break
     od;
     atomic {                          /* released */
       asked = 0; granted = 0; sent = 0; age = 1;
       if :: own[0] == 2 -> own[0] = 0; rem[0] = 0 :: else fi;
       if :: own[1] == 2 -> own[1] = 0; rem[1] = 0 :: else fi;
       if :: own[2] == 2 -> own[2] = 0; rem[2] = 0 :: else fi
     }
  od
}

proctype Env() {
  byte n;
  do
  :: atomic { LOSS if :: n = 0 :: n = 1 :: n = 2 fi; own[n] = 0; rem[n] = 0; record[n] = 0; since[n] = 0; longest[n] = 0; mark[n] = 0; FIX(n,0); n = 0 }
  :: atomic { if :: n = 0 :: n = 1 :: n = 2 fi; guard(1); n = 0 }    /* another process with short leases, for another key */
#ifdef SHARED
  :: atomic { if :: n = 0 :: n = 1 :: n = 2 fi; guard(LONG); if :: VOTES(n) -> mark[n] = 1 :: else fi; n = 0 }
#endif
  od
}

inline give_up() { step = 0; done[0] = 0; done[1] = 0; done[2] = 0 }

#ifdef COARSE
#define MORE (done[0] || done[1] || done[2])
#else
#define MORE false
#endif

proctype Lower() {
  byte n;
  do
  :: atomic {
       do
       :: if :: !done[0] -> n = 0 :: !done[1] -> n = 1 :: !done[2] -> n = 2 fi;
          if
          :: step == 0 -> guard(LONG); if :: VOTES(n) -> mark[n] = 1; done[n] = 1 :: else -> give_up() fi
          :: step == 1 -> if :: SHORT(n) && MARKED(n) -> done[n] = 1 :: else -> give_up() fi
          :: step == 2 -> if :: mark[n] -> mark[n] = 0; longest[n] = 1; done[n] = 1; if :: n == 0 -> calm = 1 :: else fi :: else -> give_up() fi
          fi;
          if
          :: done[0] && done[1] && done[2] ->
             if :: step == 0 -> unused = 1 :: step == 1 && unused == 1 || step == 2 && calm -> unused = 2 :: else fi;
             step = (step + 1) % 3; done[0] = 0; done[1] = 0; done[2] = 0
          :: else
          fi;
          if :: MORE :: else -> break fi
       od;
       n = 0
     }
  od
}

/* Process 1 asks for the key again. */
inline ask_again() {
  asked = asked | BIT(n);
  guard(LONG);
  if :: !QUARANTINED(n) && own[n] == 0 -> own[n] = 1; rem[n] = LONG; if :: granted++ :: skip fi :: else fi
}
proctype Long() {
  byte n, asked, granted;
  do
#ifdef COARSE
  :: atomic {
       trust == 0 -> asked = 0; granted = 0;
       n = 0; if :: ask_again() :: skip fi;
       n = 1; if :: ask_again() :: skip fi;
       n = 2; if :: ask_again() :: skip fi;
       if :: granted >= 2 -> trust = LONG :: else fi;
       n = 0; asked = 0; granted = 0
     }
#else
  :: atomic { trust == 0 -> asked = 0; granted = 0; fresh = 1 };
     do
     :: atomic { if :: !(asked & 1) -> n = 0 :: !(asked & 2) -> n = 1 :: !(asked & 4) -> n = 2 fi; ask_again(); n = 0 }
     :: atomic { granted >= 2 && fresh -> trust = LONG; break }
     :: break
     od
#endif
  od
}

inline tick(n) {
  if :: rem[n] > 0 -> rem[n]-- :: else fi;
  if :: rem[n] == 0 -> own[n] = 0 :: else fi;
  if :: record[n] && since[n] < LONG -> since[n]++ :: else fi
}
proctype Clock() {
  do
#ifdef AGAIN
  :: d_step { if :: trust > 0 -> trust-- :: else fi; tick(0); tick(1); tick(2); age = 1; fresh = 0 }
#else
  :: d_step { trust > 0 -> trust--; tick(0); tick(1); tick(2); age = 1 }
#endif
  od
}

init { atomic {
  byte i = 0;
  do
  :: i < 3 -> record[i] = 1; since[i] = LONG; longest[i] = LONG; FIX(i,LONG);
#ifndef AGAIN
     if :: i < 2 -> own[i] = 1; rem[i] = LONG :: i == 2 -> own[i] = 1; rem[i] = LONG :: i == 2 -> skip fi;
#endif
     i++
  :: else -> break
  od;
  i = 0;
#ifdef LOWER
  run Lower();
#endif
#ifdef AGAIN
  run Long();
#endif
  run Short(); run Env(); run Clock()
} }
