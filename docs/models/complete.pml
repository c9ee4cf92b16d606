/* complete.pml -- completion records of one key: single-decree Paxos per key, fencing tokens as ballots.
 *
 * Fully asynchronous, N = 3, q = 2: leases may expire at any moment, requests arrive late or never,
 * COMPLETE and repairs arrive any number of times, replies may be lost, clients may stop at any step.
 * Checked:
 *   A1  all values ever reported, by a successful Complete or by "done", are equal
 *   A2  an attempt whose first request arrives after such a report never becomes holder
 *   A3  a ballot never stands for two values
 *
 * Leases are reduced to what is left of them when they may expire at any time. A refusal because of a
 * live lease equals a request that never arrived, so no rule here refuses for it. L only answers the
 * question of the write-back: is the node's lease still the one granted to me? For the same reason
 * a release without dropping equals no release, and a retry is one more attempt. An attempt picks its
 * mode freely, which covers every reason to retry in recover mode.
 *
 * Attempts are numbered by their first request that arrives, nodes by the order in which attempt 1
 * reaches them; both are only names, so this loses no run.
 *
 * Build:  spin -a [-DFLAG] complete.pml && gcc -O2 -DSAFETY -DCOLLAPSE -o pan pan.c && ./pan -E -m100000 -w26
 * Size:   -DA=n attempts (3); -DK=n nodes touched by contenders that give up (1); -DHI=n every attempt
 *         proposes 0 or n as its token (0 only)
 * Flags, each of which breaks one rule and must be refuted:
 *   -DMINORITYDONE  "done" is reported although only one node said so
 *   -DFDROP         a record is dropped where some node's F had passed its ballot
 *   -DIGNORE        a recovering attempt goes on as holder although a granting node showed a record
 *   -DLOWEST        a recovering attempt adopts the record with the smallest ballot
 *   -DNOF           COMPLETE does not look at F
 *   -DOWNF          COMPLETE looks at F only where the lease is not the sender's
 *   -DOLDBALLOT     a recovering attempt spreads the record under its old ballot
 *   -DNOWB          no write-back: the token counts as stored by all granting nodes
 *   -DWBANY         the write-back counts whoever owns the lease
 *   -DWBSPENT       COMPLETE leaves another's spent lease in place
 * Flags that are no broken rules:
 *   -DLATE          requests to acquire still arrive after their attempt has its quorum
 *   -DDUPACQ        requests to acquire may arrive twice: refutes, too
 *   -DWBTOKEN       a node confirms a write-back only if F still is the token it granted: mends DUPACQ
 *
 * Why four of them break it:
 *
 * FDROP: a greater F proves nothing. A contender that gets a single node and gives up raises F there. The
 * record it passes may be decided on the two other nodes.
 *
 * OWNF: owning the lease does not excuse F. Attempt A gets nodes 1 and 2 with token 1 and becomes holder;
 * its request to node 3 is still under way. A completes at node 2 and then its lease expires. B gets
 * nodes 1 and 3 with token 2 and becomes holder. B completes at 1 and 2: decided. Its lease at 3 expires,
 * too, and A's first request arrives there and is granted, with token 3. Now A's COMPLETE with ballot 1
 * reaches node 3, which finds A's lease and takes it. A counts nodes 2 and 3 and reports a second value.
 * So a node refuses whenever F is above the ballot.
 *
 * DUPACQ: the owner alone does not identify a grant. A gets node 1 with token 1. B gets node 1 with
 * token 2 and node 2 with token 1. A gets node 2 with token 2. A copy of B's request takes node 2 again
 * with token 3, and B's write-back of token 2 finds B's lease there and counts. The same happens to A at
 * node 1. Both are holders with token 2. The copies must arrive after leases have expired, so a window on the
 * age of requests prevents it too, if it is shorter than the lease; without one, a write-back must name
 * the token of the grant, and the node must confirm it only while F still is that token.
 *
 * WBSPENT: a node that took a record must not confirm older grants. An attempt was granted a node, its
 * lease there expired, and COMPLETE put a record there. If the lease stays in place, the attempt can still
 * write back its greater token, counts the node, and never learns of the record.
 */
#ifndef A
#define A 3
#endif
#ifndef K
#define K 1
#endif
#define MAXB 16

byte L[3];                      /* attempt the lease was last granted to, 0 if none */
byte F[3];                      /* fence: greatest token given out or promised */
byte D[3];                      /* ballot of the record, 0 if there is none */
byte val[MAXB];                 /* value behind a ballot: the attempt that did the work */
byte dec;                       /* first value reported (ghost) */
byte begun;                     /* attempts with a request arrived (symmetry) */
byte noise;

#define BIT(n)   (1 << (n))
#define SUM(p)   ((p(0) -> 1 : 0) + (p(1) -> 1 : 0) + (p(2) -> 1 : 0))
#define MAX(x,y) ((x) > (y) -> (x) : (y))
#define GRANTED(i) (r[i] > 0)
#define STORES(i)  (r[i] == T)
#define CONFIRM(i) (conf & BIT(i))
#define SAME(i,j)  (d[i] > 0 && d[i] == d[j])

inline report(x) { assert(dec == 0 || dec == (x)); dec = (x) }

inline acquire() {              /* the acquire script on node n */
  tried = tried | BIT(n);
  if
  :: D[n] > 0 && !rec -> d[n] = D[n]                  /* DONE, grants nothing */
  :: else ->
       F[n] = MAX(F[n] + 1, cand); L[n] = id;
       if
       :: r[n] = F[n]; d[n] = D[n]
       :: skip                                        /* reply lost */
       fi
  fi
}

/* The second copy of a request to acquire; only the first one's reply is seen. A copy that meets its own
 * lease changes nothing. */
inline again() {
  atomic {
    if
    :: (tried & 1) && !(tried & 8)  -> n = 0
    :: (tried & 2) && !(tried & 16) -> n = 1
    :: (tried & 4) && !(tried & 32) -> n = 2
    fi;
    tried = tried | (8 << n);
    if
    :: (D[n] > 0 && !rec) || L[n] == id
    :: else -> F[n] = MAX(F[n] + 1, cand); L[n] = id
    fi;
    n = 0
  }
}

inline pick() { if :: n = 0 :: n = 1 :: n = 2 fi }

#ifdef DUPACQ
#define KEEPTRIED
#endif
#ifdef OWNF
#define KEEPTRIED
#endif
#ifdef LATE
#define KEEPTRIED
#endif

#ifdef OWNF
#define MINE id
#else
#define MINE 0                  /* nothing asks for the lease of an attempt that has its quorum */
#endif

#ifdef NOF
#define MAYCOMPLETE(i) (D[i] < T)
#elif defined(OWNF)
#define MAYCOMPLETE(i) (D[i] < T && (F[i] <= T || L[i] == id))
#elif defined(OLDBALLOT)
#define MAYCOMPLETE(i) (D[i] < T && (F[i] <= T || (!own && L[i] == id)))
#else
#define MAYCOMPLETE(i) (D[i] < T && F[i] <= T)
#endif

#ifdef WBANY
#define MAYWRITEBACK(i) true
#elif defined(WBTOKEN)
#define MAYWRITEBACK(i) (L[i] == id && F[i] == r[i])
#else
#define MAYWRITEBACK(i) (L[i] == id)
#endif

proctype Attempt(byte id) {
  byte r[3];                    /* token granted by node i, 0 if no grant is known */
  byte d[3];                    /* ballot of the record in node i's reply */
  byte T, b, v, n, conf, tried, cand;
  bit rec, late, own;

  atomic {
    begun == id - 1 -> begun = id;
    late = (dec > 0);
    if :: rec = 0 :: rec = 1 fi;
#ifdef HI
    if :: cand = 0 :: cand = HI fi;
#endif
    if :: id == 1 -> n = 0 :: id > 1 -> pick() fi;
    acquire(); n = 0
  }
  do
  :: atomic {
       (tried & 7) != 7 ->
       if
       :: !(tried & 1) -> n = 0
       :: !(tried & 2) -> n = 1
       :: !(tried & 4) && (id > 1 || (tried & 2)) -> n = 2
       fi;
       acquire(); n = 0
     }
#ifdef DUPACQ
  :: again()
#endif
#ifdef MINORITYDONE
  :: atomic { !rec && d[0] + d[1] + d[2] > 0 -> b = MAX(d[0], MAX(d[1], d[2])); report(val[b]); goto done }
#else
  :: atomic { !rec && (SAME(0,1) || SAME(0,2)) -> b = d[0]; report(val[b]); goto done }
  :: atomic { !rec && SAME(1,2) -> b = d[1]; report(val[b]); goto done }
#endif
#ifdef FDROP
  :: atomic {                   /* n shows a record, another node's F had passed it before this attempt */
       !rec && SUM(GRANTED) < 2 && d[0] + d[1] + d[2] > 0 ->
       b = MAX(d[0], MAX(d[1], d[2]));
       MAX(r[0], MAX(r[1], r[2])) > b + 1 ->
       pick(); if :: D[n] == b -> D[n] = 0 :: else fi; n = 0; b = 0
     }
#endif
  :: atomic { SUM(GRANTED) >= 2 -> T = MAX(r[0], MAX(r[1], r[2])); break }
  od;

#ifndef NOWB
  do                            /* write-back until a quorum stores T */
  :: atomic { SUM(STORES) >= 2 -> break }
  :: atomic {
       SUM(STORES) < 2 ->
       if
       :: r[0] > 0 && r[0] < T && MAYWRITEBACK(0) -> n = 0
       :: r[1] > 0 && r[1] < T && MAYWRITEBACK(1) -> n = 1
       :: r[2] > 0 && r[2] < T && MAYWRITEBACK(2) -> n = 2
       fi;
       F[n] = MAX(F[n], T); r[n] = T; n = 0
     }
#ifdef DUPACQ
  :: again()
#endif
  od;
#endif

  atomic {                      /* the quorum has promised: adopt a record, or become holder */
    b = 0; n = 0;
    do
    :: n < 3 ->
#ifdef LOWEST
       if :: r[n] > 0 && d[n] > 0 && (b == 0 || d[n] < b) -> b = d[n] :: else fi;
#else
       if :: r[n] > 0 && d[n] > b -> b = d[n] :: else fi;
#endif
       n++
    :: else -> break
    od;
#ifdef IGNORE
    b = 0;
#endif
    if
    :: b > 0 -> v = val[b];
#ifdef OLDBALLOT
       T = b
#endif
    :: else -> own = 1; v = id; assert(!late)         /* A2 */
    fi;
    n = 0;
    do
    :: n < 3 -> r[n] = 0; d[n] = 0;
#if !defined(OWNF) && !defined(OLDBALLOT)
       if :: L[n] == id -> L[n] = 0 :: else fi;       /* nothing asks for it any more */
#endif
       n++
    :: else -> break
    od;
    n = 0; b = 0; late = 0; rec = 0
#ifndef KEEPTRIED
    ; tried = 0; cand = 0
#endif
  }
  do                            /* every request that may still arrive, any number of times */
  :: atomic {                   /* COMPLETE */
       if :: MAYCOMPLETE(0) -> n = 0 :: MAYCOMPLETE(1) -> n = 1 :: MAYCOMPLETE(2) -> n = 2 fi;
       assert(val[T] == 0 || val[T] == v);            /* A3 */
       val[T] = v; D[n] = T; F[n] = MAX(F[n], T);
#ifdef WBSPENT
       if :: L[n] == id -> L[n] = 0 :: else fi;
#else
       L[n] = 0;
#endif
       n = 0
     }
  :: atomic {                   /* its reply; a repeated COMPLETE is confirmed too */
       if
       :: D[0] == T && !(conf & 1) -> n = 0
       :: D[1] == T && !(conf & 2) -> n = 1
       :: D[2] == T && !(conf & 4) -> n = 2
       fi;
       conf = conf | BIT(n); n = 0;
       if :: SUM(CONFIRM) == 2 -> report(v) :: else fi    /* A1 */
     }
  :: atomic {                   /* release by the holder: drops older records */
       if
       :: own && D[0] > 0 && D[0] < T -> D[0] = 0
       :: own && D[1] > 0 && D[1] < T -> D[1] = 0
       :: own && D[2] > 0 && D[2] < T -> D[2] = 0
       fi
     }
#ifndef OLDBALLOT
  :: atomic {                   /* renewal takes a node whose lease is spent under the acquire rule */
       if :: F[0] < T -> n = 0 :: F[1] < T -> n = 1 :: F[2] < T -> n = 2 fi;
       F[n] = T; L[n] = MINE; n = 0
     }
#endif
#ifdef KEEPTRIED
  :: atomic {                   /* a request to acquire that arrives only now */
       (tried & 7) != 7 -> if :: !(tried & 1) -> n = 0 :: !(tried & 2) -> n = 1 :: !(tried & 4) -> n = 2 fi;
       tried = tried | BIT(n); F[n] = MAX(F[n] + 1, cand); L[n] = id; n = 0
     }
#endif
  od;

done:                           /* repair: b is decided, so F has no say */
  atomic {
    n = 0;
    do
    :: n < 3 -> r[n] = 0; d[n] = 0; if :: L[n] == id -> L[n] = 0 :: else fi; n++
    :: else -> break
    od;
    n = 0; late = 0; tried = 0; cand = 0
  }
  do
  :: atomic {
       if :: D[0] < b -> D[0] = b :: D[1] < b -> D[1] = b :: D[2] < b -> D[2] = b fi
     }
  od
}

proctype Contender() {          /* others that get single nodes and give up */
  do
  :: atomic {
       noise < K -> noise++;
       if
       :: F[0]++; L[0] = 0
       :: F[1]++; L[1] = 0
       :: F[2]++; L[2] = 0
       fi
     }
  od
}

init {
  atomic {
    byte i = 1;
    do :: i <= A -> run Attempt(i); i++ :: else -> break od;
    run Contender(); i = 0
  }
}
