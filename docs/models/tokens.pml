/* tokens.pml -- fencing tokens when leases come back to nodes whose fence has passed them, and when fences are put back.
 * N = 3, q = 2. Fully asynchronous: leases run out at any moment, requests and renewals arrive at any time, answers get lost,
 * clients stop anywhere. A holder was told token 1 on nodes 0 and 1 when the run begins; two attempts follow. No memory is lost.
 *
 * State per node:    own  attempt that owns the lease, 0 = none;  ctr  the fence, the greatest token given out
 *                    with UNDO: spent  the lease has run out, its owner's name stays;  pre  the fence that its grant found
 * State per attempt: r  token that each node granted;  t  its token, the greatest of them;  cand  token it proposes, 0 or HI;
 *                    floor0  greatest token reported when it began;  tried  nodes asked;  over  it has given up
 * Rules
 *   Acquire     a free node; raises the fence above everything before. The attempt's token is the greatest granted, and a quorum
 *               has to store it: other nodes are written back, which counts only while the lease is the one they granted.
 *   Renew       of a hold that was reported takes any free node, whatever its fence, which keeps the greater value (REJOIN).
 *   Release     of an attempt that was never reported puts the fence back where the lease is its own (UNDO). What it sent may still
 *               arrive until the release has been there.
 * Checked:  F1  an attempt that begins after a token was reported gets a greater one;  F2  no token is reported twice
 * Flags that break a rule, and must be refuted
 *   -DREJOINLOW    a renewal writes its own token over the fence
 *   -DREJOINEARLY  an attempt takes free nodes like a renewal before it is reported
 *   -DUNDOHELD     a hold that was reported puts fences back
 */
#ifdef UNDOHELD
#define UNDO
#endif
#ifndef HI
#define HI 3
#endif
#define MAX(x,y) ((x) > (y) -> (x) : (y))
byte own[3], ctr[3];
byte last;                         /* greatest token reported */
#ifdef UNDO
byte pre[3];                       /* the fence that the present lease's grant found */
bit spent[3];
#define FREE(n) (own[n] == 0 || spent[n])
#define TAKE(n) own[n] = id; spent[n] = 0
#define GRANTED(n) pre[n] = ctr[n]
#define SAME(n) (ctr[n] == r[n])
#else
#define FREE(n) (own[n] == 0)
#define TAKE(n) own[n] = id
#define GRANTED(n) skip
#define SAME(n) true
#endif
bit used[40];                      /* tokens reported */

#define STORED ((r[0] == t -> 1 : 0) + (r[1] == t -> 1 : 0) + (r[2] == t -> 1 : 0))

inline grant() {
  tried = tried | (1 << n);
  if
  :: FREE(n) && own[n] != id ->
       TAKE(n); x = MAX(ctr[n] + 1, cand); GRANTED(n);
       ctr[n] = x;
       if :: !over -> r[n] = x :: skip fi;
       x = 0
  :: else -> skip
  fi
}
#ifdef UNDO
inline restore() {                                             /* REL with undo */
  tried = tried | (1 << n) | (16 << n); r[n] = 0;
  if :: (tried & 7) == 7 -> cand = 0 :: else fi;
  if
  :: own[n] == id -> ctr[n] = pre[n]
  :: else
  fi;
  if :: own[n] == id -> own[n] = 0; spent[n] = 0; pre[n] = 0 :: else fi
}
#endif
inline report(k) { assert(k > floor0); assert(!used[k]); used[k] = 1; last = MAX(last, k) }   /* F1 F2 */

proctype Client(byte id) {
  byte r[3], floor0, cand, n, t, x, tried;
  bit over;
  if :: id == 3 -> t = 1; goto holds :: else fi;
  atomic { if :: cand = 0 :: cand = HI fi; floor0 = last }
  do
  :: atomic { !(tried & 1) -> n = 0; grant(); n = 0 }
  :: atomic { !(tried & 2) && (id != 1 || (tried & 1)) -> n = 1; grant(); n = 0 }
  :: atomic { !(tried & 4) -> n = 2; grant(); n = 0 }
  :: atomic { id == 1 && tried == 0 -> tried = 1 }            /* attempt 1 names the nodes: it may leave one out */
  :: atomic { (r[0] > 0 -> 1 : 0) + (r[1] > 0 -> 1 : 0) + (r[2] > 0 -> 1 : 0) >= 2 -> t = MAX(r[0], MAX(r[1], r[2])); cand = 0; break }
#ifdef UNDO
  :: atomic { true -> goto gaveup }
#endif
  od;
  do                                                           /* write-back */
  :: atomic { STORED >= 2 -> break }
  :: atomic { STORED < 2 ->
       if
       :: r[0] > 0 && r[0] < t && own[0] == id && SAME(0) -> n = 0
       :: r[1] > 0 && r[1] < t && own[1] == id && SAME(1) -> n = 1
       :: r[2] > 0 && r[2] < t && own[2] == id && SAME(2) -> n = 2
#ifdef REJOINEARLY
       :: own[0] == 0 -> n = 0; own[0] = id
       :: own[1] == 0 -> n = 1; own[1] = id
       :: own[2] == 0 -> n = 2; own[2] = id
#endif
       fi;
       ctr[n] = MAX(ctr[n], t); r[n] = t;
       n = 0 }
#ifdef UNDO
  :: atomic { true -> goto gaveup }
#endif
  od;
  atomic { report(t);
#if defined(UNDO) && !defined(UNDOHELD)
    if :: own[0] == id -> pre[0] = 0 :: else fi; if :: own[1] == id -> pre[1] = 0 :: else fi; if :: own[2] == id -> pre[2] = 0 :: else fi;
#endif
    r[0] = 0; r[1] = 0; r[2] = 0; tried = 0 }
holds:
  do
#if defined(REJOIN) || defined(REJOINLOW)
  :: atomic {                                                  /* renewals, early and late */
       if :: FREE(0) -> n = 0 :: FREE(1) -> n = 1 :: FREE(2) -> n = 2 fi;
       TAKE(n);
#if defined(UNDO) && !defined(UNDOHELD)
       pre[n] = 0;
#endif
#ifdef REJOINLOW
       ctr[n] = t;
#else
       ctr[n] = MAX(ctr[n], t);
#endif
       n = 0 }
#endif
#ifdef UNDOHELD
  :: atomic { if :: own[0] == id -> n = 0 :: own[1] == id -> n = 1 :: own[2] == id -> n = 2 fi; restore(); n = 0 }
#endif
  :: false
  od;
#ifdef UNDO
gaveup:                                                        /* what is under way may still arrive; so does the release */
  atomic { over = 1; floor0 = 0;
    if :: t == 0 || r[0] == t || own[0] != id -> r[0] = 0 :: else fi; if :: t == 0 || r[1] == t || own[1] != id -> r[1] = 0 :: else fi; if :: t == 0 || r[2] == t || own[2] != id -> r[2] = 0 :: else fi }
  do
  :: atomic { !(tried & 1) -> n = 0; grant(); n = 0 }
  :: atomic { !(tried & 2) -> n = 1; grant(); n = 0 }
  :: atomic { !(tried & 4) -> n = 2; grant(); n = 0 }
  :: atomic { t > 0 ->
       if
       :: r[0] > 0 && r[0] < t && own[0] == id && SAME(0) -> n = 0
       :: r[1] > 0 && r[1] < t && own[1] == id && SAME(1) -> n = 1
       :: r[2] > 0 && r[2] < t && own[2] == id && SAME(2) -> n = 2
       fi;
       ctr[n] = t; r[n] = 0;
       n = 0 }
  :: atomic { (own[0] == id || !(tried & 1)) -> n = 0; restore(); n = 0 }
  :: atomic { (own[1] == id || !(tried & 2)) -> n = 1; restore(); n = 0 }
  :: atomic { (own[2] == id || !(tried & 4)) -> n = 2; restore(); n = 0 }
  od
#endif
}
#ifdef UNDO
proctype Env() {                   /* any lease may run out at any moment */
  do
  :: atomic { own[0] > 0 && !spent[0] -> spent[0] = 1 } :: atomic { own[1] > 0 && !spent[1] -> spent[1] = 1 } :: atomic { own[2] > 0 && !spent[2] -> spent[2] = 1 }
  od
}
#else
proctype Env() {
  do
  :: atomic { own[0] > 0 -> own[0] = 0 } :: atomic { own[1] > 0 -> own[1] = 0 } :: atomic { own[2] > 0 -> own[2] = 0 }
  od
}
#endif
init { atomic {
  own[0] = 3; own[1] = 3; ctr[0] = 1; ctr[1] = 1; used[1] = 1; last = 1;
  run Client(1); run Client(2); run Client(3); run Env() } }
