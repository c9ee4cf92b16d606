/* records.pml -- completion records of one key with time, renewals and nodes that lose their memory.  N = 3, q = 2.
 *
 * complete.pml checks the ballots without time and without loss. Here leases last TTL ticks, and nodes forget: they restart empty
 * or from an older snapshot. There are two attempts. Requests arrive at any time after they are sent, COMPLETE any number of times,
 * also after a release; clients stop anywhere.
 *
 * State per node
 *   own, rem   attempt that owns the lease, ticks left of it (0 = spent, the owner stays)
 *   F          fence: greatest token given out or promised;  D  ballot of the record, 0 = none
 *   q          ticks of quarantine left;  fl  floor that the node's clock gives to tokens after a loss
 *   pre        with UNDO: the fence that the grant of the present lease found
 * State per attempt
 *   mem        nodes whose present memory is the one that covers the attempt there (a name of the memory, in the scripts)
 *   val        ticks of trust left, 0 = not trusted;  age  ticks since the round of requests began
 *   ls         ticks until the expiry that each node last confirmed;  ren  a round of renewal is under way
 *   over       with UNDO: the attempt has given up;  conf  nodes that confirmed the record, 8 = a COMPLETE was sent
 *
 * Rules
 *   Acquire    outside quarantine, where no other lease lives. A node with a record answers "done" and grants nothing, unless the
 *              attempt settles records. In quarantine it only shows its record.
 *   Settle     an attempt that was shown a record by a node that granted completes it under its own token; like a holder it does so
 *              only while its validity lasts.
 *   Renew      takes any free node, whatever its fence, which keeps the greater value. In quarantine it counts only where the
 *              expiry that the node last confirmed lies ahead; another's lease out of a snapshot gives way then.
 *   Complete   is accepted where the fence is not above the ballot, no other lease lives, and the node's memory covers the attempt.
 *              Memory covers it if it lasts since before the attempt's first request, or if it granted the lease, or if it
 *              confirmed a renewal and the hold was still trusted when the reply was handled.
 *   Release    an attempt that was never reported and never sent COMPLETE puts the fence back where the lease is its own (UNDO).
 * A node forgets only while it has no record, or while all nodes have the same one: what guarantee 7 asks of nodes, for three of them.
 * A node that forgets begins its new memory at that instant, which is the shortest quarantine.
 *
 * Checked
 *   R1  all values ever reported are equal           R2  a ballot stands for one value
 *   R3  nobody becomes holder after a report         R4  nobody is trusted when a completion is confirmed
 *   R5  two attempts are never trusted at once
 *
 * Size and faults
 *   -DTTL=n      ticks of a lease and of the quarantine (2)
 *   -DLOSSES=n   how often nodes forget (1);  -DLOSSY=m  nodes 0 to m-1 may (1);  -DSNAP  node 0 may come back from a snapshot
 *   -DRENEW      holders renew, without bound in number;  -DHEARD  no answer is lost
 *   -DSEED       an earlier attempt left a record on node 1 that is not decided, and is gone itself
 *   -DROLES      attempt 1 holds and renews, attempt 2 settles;  -DSTART  with both: attempt 1 holds nodes 0 and 2, with token 2
 *   -DUNDO       attempts may give up and put fences back; what they sent may still arrive until the release has been there
 *   -DRELEASED   the holder may release while its COMPLETE is under way
 * Flags that break a rule, and must be refuted
 *   -DOLDCOVER   COMPLETE counts where the lease is one's own or the node is out of quarantine             CE-21
 *   -DANYTIME    nodes forget at any time: the limit of what is promised                                    CE-22
 *   -DLATEREPLY  a confirmed renewal covers although the hold is not trusted any more                       CE-26
 *   -DKNOWN      memory also covers while the expiry that it confirmed lies ahead (with RELEASED)           CE-27
 *   -DNOAGE      an attempt settles a record although its validity is over                                  CE-28
 *   -DUNDOSENT   a settling attempt that sent COMPLETE puts the fence back
 *
 * Schedules, as the tests of core number them:
 *
 * CE-26. A holds nodes 0 and 2. Its lease on 0 runs out; a settling client is granted 0 and 1 with a greater token; node 0 forgets
 * that. When its quarantine is over, a late renewal of A takes it. If that covers, A's COMPLETE is confirmed by 0 and 2, the other's by 1 and 0
 * or 1 and 2: two results. While A is trusted this cannot be: an attempt that was granted the node before the loss is past its validity when
 * the quarantine ends, and an attempt that was ready before would have been valid together with A.
 *
 * CE-27. A holds 0 and 2 and calls Complete; the request to 2 is delayed, and A releases. B is granted 1 and 2 with a greater token.
 * Node 2 forgets, while the expiry that it once confirmed to A still lies ahead. A's COMPLETE arrives there: with an expiry as
 * cover it is accepted, and with node 0 that is a result; B completes on 1 and 2. The name of the memory has changed, so it refuses.
 *
 * CE-28. A settling attempt is granted node 0 with the greatest token; node 0 forgets; A, trusted, renews there after the quarantine and
 * completes on 0 and another node. The old attempt gets the third node only now, where an older undecided record stands, and settles it.
 */
#ifdef UNDOSENT
#define UNDO
#endif
#ifndef TTL
#define TTL 2
#endif
#ifndef LOSSES
#define LOSSES 1
#endif
#ifndef LOSSY
#define LOSSY 1
#endif
#define MAXB 24
#define BIT(n) (1 << (n))
#define RAISED(n) if :: F[n] >= fl[n] -> fl[n] = 0 :: else fi; if :: losses == LOSSES -> maxtok = 0 :: else fi
#define MAX(x,y) ((x) > (y) -> (x) : (y))
#define LS(i,n) ls[(i)*3+(n)]
#define YES(m) m[id] = m[id] | BIT(n)
#define NO(m) m[id] = m[id] & (7 - BIT(n))
#define HAS(m,n) (m[id] & BIT(n))
#ifdef ROLES
#define RENEWS(i) ((i) == 1)
#else
#define RENEWS(i) true
#endif

byte own[3], rem[3], F[3], D[3];
byte q[3], fl[3];
byte mem[3];
byte age[3], val[3];
byte vof[MAXB];
byte dec, maxtok, begun, losses;
#ifdef RENEW
byte ls[9]; bit ren[3];
#define CLEARREN ren[id] = 0
#define ENDLS if :: !ren[id] -> CLEARLS :: else fi
#else
#define ENDLS skip
#define CLEARREN skip
#endif
#ifdef KNOWN
byte kn[9]; byte sk[3];
#define K(i,n) kn[(i)*3+(n)]
#endif
#ifdef SNAP
byte sown, srem, sF, sD;              /* the snapshot of node 0 */
#endif
#ifdef UNDO
byte pre[3];
#define BESIDE(n) if :: own[n] != id -> pre[n] = F[n] :: else fi
#define TAKEN(n) pre[n] = 0
inline restore() {
  if :: own[n] == id -> F[n] = MAX(pre[n], D[n]); own[n] = 0; rem[n] = 0; pre[n] = 0 :: else fi
}
#else
#define BESIDE(n) skip
#define TAKEN(n) skip
#endif
#ifdef UNDOSENT
#define FREE(n) restore()
#else
#define FREE(n) own[n] = 0; rem[n] = 0; TAKEN(n)
#endif

inline trusted() { assert(val[3 - id] == 0) }
inline report(x) { printf("%d reports %d\n", id, x); assert(dec == 0 || dec == (x)); trusted(); dec = (x) }

inline granted() {
  YES(mem);
#ifdef RENEW
  if :: RENEWS(id) -> LS(id,n) = TTL :: else fi;
#endif
#ifdef KNOWN
  K(id,n) = TTL; 
#endif
}
#ifdef LATEREPLY
#define COUNTS true
#else
#define COUNTS (val[id] > 0)
#endif
inline confirmed() {
  if
  :: COUNTS ->
     YES(mem);
#ifdef KNOWN
     K(id,n) = TTL;
#endif
  :: else
  fi;
  LS(id,n) = (val[id] > 0 -> TTL : 0); g = (val[id] > 0 -> g + 1 : 0)
}
inline acquire() {
  tried = tried | BIT(n);
  if
  :: q[n] > 0 ->
     if :: !rec && D[n] > 0 && !over -> d[n] = D[n] :: else fi        /* it shows its record all the same */
  :: q[n] == 0 && own[n] != 0 && own[n] != id && rem[n] > 0 -> skip              /* HELD */
  :: q[n] == 0 && !(own[n] != 0 && own[n] != id && rem[n] > 0) ->
     if
     :: D[n] > 0 && !rec -> if :: !over -> d[n] = D[n] :: else fi                                            /* DONE */
     :: else ->
        printf("%d granted by node %d\n", id, n);
        BESIDE(n);
        F[n] = MAX(F[n], fl[n]) + 1; own[n] = id; rem[n] = TTL; maxtok = MAX(maxtok, F[n]); RAISED(n);
        if
        :: !over -> r[n] = F[n]; d[n] = D[n]; granted()
#ifdef UNDO
        :: over
#endif
#ifndef HEARD
        :: skip
#endif
        fi
     fi
  fi
}
inline renew() {
  rt = rt | BIT(n); printf("%d renews at node %d: own %d rem %d\n", id, n, own[n], rem[n]);
  if
  :: q[n] > 0 && LS(id,n) > 0 || q[n] == 0 && !(own[n] != 0 && own[n] != id && rem[n] > 0) ->
     if :: own[n] != id -> TAKEN(n) :: else fi;
#ifdef HEARD
     confirmed();
#else
     if :: confirmed() :: skip fi;
#endif
     own[n] = id; rem[n] = TTL; F[n] = MAX(F[n], T); RAISED(n)
  :: else -> skip
  fi
}

#ifdef OLDCOVER
#define COVERS(n) (own[n] == id || q[n] == 0)
#elif defined(KNOWN)
#define COVERS(n) (HAS(mem,n) || HAS(sk,n) || K(id,n) > 0)
#else
#define COVERS(n) HAS(mem,n)
#endif
#define ACCEPTS(n) (D[n] < T && F[n] <= T && !(own[n] != 0 && own[n] != id && rem[n] > 0) && COVERS(n))

#define GRANTS ((r[0] > 0 -> 1 : 0) + (r[1] > 0 -> 1 : 0) + (r[2] > 0 -> 1 : 0))
#define STORED ((r[0] == T -> 1 : 0) + (r[1] == T -> 1 : 0) + (r[2] == T -> 1 : 0))
#if LOSSY == 1
#define ORDER(n) (id > 1 || (n) != 2 || (tried & 2))
#elif LOSSY == 2
#define ORDER(n) (id > 1 || (n) != 1 || (tried & 1))
#else
#define ORDER(n) (id > 1 || (n) == 0 || (tried & BIT((n)-1)))
#endif
#ifdef KNOWN
#define CLEARKN K(id,0) = 0; K(id,1) = 0; K(id,2) = 0; sk[id] = 0
#else
#define CLEARKN skip
#endif
#ifdef RENEW
#define CLEARLS LS(id,0) = 0; LS(id,1) = 0; LS(id,2) = 0
#else
#define CLEARLS skip
#endif
#ifdef NOAGE
#define YOUNG true
#else
#define YOUNG (age[id] < TTL)
#endif

proctype Attempt(byte id) {
  byte r[3], d[3];
  byte T, b, v, n, tried, conf, g, rt;
  bit rec, mine, over;

#ifdef START
  if :: id == 1 -> T = 2; v = 1; mine = 1; goto holds :: else fi;
#endif
  atomic {
    begun == id - 1 -> begun = id; age[id] = 0; mem[id] = 7;
#ifdef ROLES
    rec = (id == 2)
#else
    if :: rec = 0 :: rec = 1 fi
#endif
  }
  do
  :: atomic { !(tried & 1) && ORDER(0) -> n = 0; acquire(); n = 0 }
  :: atomic { !(tried & 2) && ORDER(1) -> n = 1; acquire(); n = 0 }
  :: atomic { !(tried & 4) && ORDER(2) -> n = 2; acquire(); n = 0 }
  :: atomic { !rec && d[0] > 0 && r[0] == 0 && (d[0] == d[1] && r[1] == 0 || d[0] == d[2] && r[2] == 0) -> b = d[0]; break }
  :: atomic { !rec && d[1] > 0 && r[1] == 0 && d[1] == d[2] && r[2] == 0 -> b = d[1]; break }
  :: atomic { GRANTS >= 2 -> T = MAX(r[0], MAX(r[1], r[2])); break }
#ifdef UNDO
  :: atomic { true -> goto gaveup }
#endif
  od;
  if
  :: atomic { b > 0 -> report(vof[b]); T = b; v = vof[b]; goto bring }
  :: else
  fi;

  do                                   /* write-back */
  :: atomic { STORED >= 2 -> break }
  :: atomic {
       STORED < 2 ->
       if
       :: r[0] > 0 && r[0] < T && own[0] == id && F[0] == r[0] -> n = 0
       :: r[1] > 0 && r[1] < T && own[1] == id && F[1] == r[1] -> n = 1
       :: r[2] > 0 && r[2] < T && own[2] == id && F[2] == r[2] -> n = 2
       fi;
       HAS(mem,n) -> skip;              /* only in the memory that granted */
       printf("%d writes %d back at node %d\n", id, T, n); F[n] = T; r[n] = T; rem[n] = TTL; granted(); n = 0
     }
#ifdef UNDO
  :: atomic { true -> goto gaveup }
#endif
  od;

  atomic {
    b = 0; n = 0;
    do
    :: n < 3 -> if :: r[n] > 0 && d[n] > b -> b = d[n] :: else fi; n++
    :: else -> break
    od;
    n = 0;
    if
    :: b == 0 && age[id] < TTL -> printf("%d holds with token %d\n", id, T); val[id] = TTL - age[id]; mine = 1; v = id;
       assert(dec == 0); trusted()
    :: b > 0 && YOUNG -> v = vof[b]; printf("%d adopts %d under %d\n", id, v, T)
    :: b > 0 && !YOUNG || b == 0 && age[id] >= TTL -> goto gone
    fi;
    r[0] = 0; r[1] = 0; r[2] = 0; d[0] = 0; d[1] = 0; d[2] = 0; b = 0; tried = 0; rec = 0; age[id] = TTL
#ifdef RENEW
    ; if :: !mine -> CLEARLS :: else fi
#endif
  }

holds:
  do                                   /* hold, renew, complete; all of it late, if it likes */
#ifdef RENEW
  :: atomic { RENEWS(id) && mine && !ren[id] && val[id] > 0 -> ren[id] = 1; age[id] = 0; rt = 0; g = 0 }
  :: atomic { ren[id] && !(rt & 1) -> n = 0; renew(); n = 0 }
  :: atomic { ren[id] && !(rt & 2) -> n = 1; renew(); n = 0 }
  :: atomic { ren[id] && !(rt & 4) -> n = 2; renew(); n = 0 }
  :: atomic { ren[id] && g >= 2 && val[id] > 0 && age[id] < TTL ->
       val[id] = MAX(val[id], TTL - age[id]); ren[id] = 0; rt = 0; g = 0; age[id] = TTL; trusted() }
  :: atomic { ren[id] -> ren[id] = 0; g = 0; rt = 0; age[id] = TTL; if :: val[id] == 0 -> CLEARLS :: else fi }
#endif
#ifdef RELEASED
#define ENDED (!mine || conf > 0)
#else
#define ENDED (!mine)
#endif
  :: atomic { ENDED && own[0] == id -> n = 0; FREE(n); n = 0 }   /* released; COMPLETE may still be under way */
  :: atomic { ENDED && own[1] == id -> n = 1; FREE(n); n = 0 }
  :: atomic { ENDED && own[2] == id -> n = 2; FREE(n); n = 0 }
  :: atomic {                          /* COMPLETE; the first one ends the hold */
       if :: ACCEPTS(0) -> n = 0 :: ACCEPTS(1) -> n = 1 :: ACCEPTS(2) -> n = 2 fi;
       val[id] = 0; conf = conf | 8; ENDLS;
       assert(vof[T] == 0 || vof[T] == v);                                          /* R2 */
       printf("%d COMPLETE %d at node %d, mem %d\n", id, T, n, mem[id]); vof[T] = v; D[n] = T; F[n] = MAX(F[n], T); RAISED(n); own[n] = 0; rem[n] = 0; TAKEN(n);
#ifdef HEARD
       conf = conf | BIT(n);
#else
       if :: conf = conf | BIT(n) :: skip fi;
#endif
       n = 0;
       if :: (conf & 7) == 3 || (conf & 7) == 5 || (conf & 7) == 6 || (conf & 7) == 7 -> report(v); goto bring :: else fi
     }
#ifdef RELEASED
  :: atomic { mine && val[id] > 0 && conf == 0 -> val[id] = 0; conf = 8 }         /* COMPLETE was sent */
#endif
  :: atomic {                          /* repeated, confirmed again */
       if
       :: D[0] == T && !(conf & 1) -> n = 0
       :: D[1] == T && !(conf & 2) -> n = 1
       :: D[2] == T && !(conf & 4) -> n = 2
       fi;
       conf = conf | BIT(n); n = 0;
       if :: (conf & 7) == 3 || (conf & 7) == 5 || (conf & 7) == 6 || (conf & 7) == 7 -> report(v); goto bring :: else fi
     }
  od;

bring:                                 /* T is decided: nodes that lack it get it, whatever F says */
  atomic { r[0] = 0; r[1] = 0; r[2] = 0; d[0] = 0; d[1] = 0; d[2] = 0; b = 0; tried = 0; rec = 0; conf = 0; CLEARREN; rt = 0; g = 0;
    mine = 0; age[id] = TTL; CLEARLS; CLEARKN; mem[id] = 0 }
  do
  :: atomic {
       if :: D[0] < T -> n = 0 :: D[1] < T -> n = 1 :: D[2] < T -> n = 2 fi;
       D[n] = T; F[n] = MAX(F[n], T); RAISED(n);
       if :: own[n] != 0 && rem[n] == 0 -> own[n] = 0; TAKEN(n) :: else fi;
       n = 0
     }
  od;
gone:
#ifdef UNDO
gaveup:
  atomic { over = 1; b = 0; rec = 1; age[id] = TTL; val[id] = 0; if :: T == 0 || r[0] + r[1] + r[2] == 0 -> mem[id] = 0 :: else fi; d[0] = 0; d[1] = 0; d[2] = 0; g = 0;
    CLEARLS; CLEARKN;
    if :: T == 0 || r[0] == T -> r[0] = 0 :: else fi; if :: T == 0 || r[1] == T -> r[1] = 0 :: else fi; if :: T == 0 || r[2] == T -> r[2] = 0 :: else fi }
  do                                   /* what is under way may still arrive; so does the release; conf = where it has been */
  :: atomic { !(tried & 1) && !(conf & 1) -> n = 0; acquire(); n = 0 }
  :: atomic { !(tried & 2) && !(conf & 2) -> n = 1; acquire(); n = 0 }
  :: atomic { !(tried & 4) && !(conf & 4) -> n = 2; acquire(); n = 0 }
  :: atomic { T > 0 ->
       if
       :: r[0] > 0 && r[0] < T && own[0] == id && F[0] == r[0] && HAS(mem,0) -> n = 0
       :: r[1] > 0 && r[1] < T && own[1] == id && F[1] == r[1] && HAS(mem,1) -> n = 1
       :: r[2] > 0 && r[2] < T && own[2] == id && F[2] == r[2] && HAS(mem,2) -> n = 2
       fi;
       F[n] = T; r[n] = 0; rem[n] = TTL; n = 0 }
  :: atomic {
       if :: !(conf & 1) -> n = 0 :: !(conf & 2) -> n = 1 :: !(conf & 4) -> n = 2 fi;
       conf = conf | BIT(n); tried = tried | BIT(n); r[n] = 0; restore(); n = 0; if :: r[0] + r[1] + r[2] == 0 -> mem[id] = 0 :: else fi;
       if :: conf == 7 -> break :: else fi }
  od;
#endif
  atomic { r[0] = 0; r[1] = 0; r[2] = 0; d[0] = 0; d[1] = 0; d[2] = 0; b = 0; tried = 0; rec = 0; age[id] = TTL; T = 0; conf = 0; over = 0;
    CLEARLS; CLEARKN; mem[id] = 0 }
}

#ifdef KNOWN
#define LOSEK(i) if :: K(i,n) > 0 -> sk[i] = sk[i] | BIT(n) :: else -> sk[i] = sk[i] & (7 - BIT(n)) fi;
#else
#define LOSEK(i)
#endif
#define LOSE(i) LOSEK(i) mem[i] = mem[i] & (7 - BIT(n))
inline forget() {
  printf("node %d forgets\n", n); losses++; q[n] = TTL; fl[n] = (maxtok > F[n] -> maxtok : 0); if :: losses == LOSSES -> maxtok = 0 :: else fi; LOSE(1); LOSE(2)
}
#ifdef ANYTIME
#define MAYFORGET(n) true
#elif defined(SEED)
#define MAYFORGET(n) (D[n] <= 1 || (D[0] == D[1] && D[1] == D[2]))
#else
#define MAYFORGET(n) (D[n] == 0 || (D[0] == D[1] && D[1] == D[2]))
#endif
proctype Env() {
  byte n;
  do
  :: atomic { losses < LOSSES ->
       if :: MAYFORGET(0) -> n = 0
#if LOSSY > 1
       :: MAYFORGET(1) -> n = 1
#endif
#if LOSSY > 2
       :: MAYFORGET(2) -> n = 2
#endif
       fi;
       own[n] = 0; rem[n] = 0; F[n] = 0; D[n] = 0; TAKEN(n); forget(); n = 0 }
#ifdef SNAP
  :: atomic { losses < LOSSES && MAYFORGET(0) && sF > 0 -> own[0] = sown; rem[0] = srem; F[0] = sF; D[0] = sD;
       forget(); sown = 0; srem = 0; sF = 0; sD = 0 }
  :: atomic { losses < LOSSES && sF == 0 && F[0] > 0 -> sown = own[0]; srem = rem[0]; sF = F[0]; sD = D[0] }
#endif
  od
}
inline dc(x) { if :: x > 0 -> x-- :: else fi }
inline up(x) { if :: x < TTL -> x++ :: else fi }
proctype Clock() {
  do
  :: d_step {
       printf("tick\n"); dc(rem[0]); dc(rem[1]); dc(rem[2]); dc(q[0]); dc(q[1]); dc(q[2]);
#ifdef SNAP
       dc(srem);
#endif
#ifdef RENEW
       dc(LS(1,0)); dc(LS(1,1)); dc(LS(1,2)); dc(LS(2,0)); dc(LS(2,1)); dc(LS(2,2));
#endif
#ifdef KNOWN
       dc(K(1,0)); dc(K(1,1)); dc(K(1,2)); dc(K(2,0)); dc(K(2,1)); dc(K(2,2));
#endif
       dc(val[1]); dc(val[2]);
#ifdef RENEW
       if :: val[1] == 0 && !ren[1] -> LS(1,0) = 0; LS(1,1) = 0; LS(1,2) = 0 :: else fi;
       if :: val[2] == 0 && !ren[2] -> LS(2,0) = 0; LS(2,1) = 0; LS(2,2) = 0 :: else fi;
#endif
       up(age[1]); up(age[2])
     }
  od
}
init { atomic {
  age[1] = TTL; age[2] = TTL;
#ifdef SEED
  F[0] = 1; F[1] = 1; D[1] = 1; vof[1] = 15; maxtok = 1;
#endif
#ifdef START
  own[0] = 1; own[2] = 1; rem[0] = TTL; rem[2] = TTL; F[0] = 2; F[2] = 2; maxtok = 2;
  mem[1] = 7; val[1] = TTL; begun = 1;
#ifdef RENEW
  LS(1,0) = TTL; LS(1,2) = TTL;
#endif
#ifdef KNOWN
  K(1,0) = TTL; K(1,2) = TTL;
#endif
#endif
  run Attempt(1); run Attempt(2);
  run Env(); run Clock()
} }
