/* renewals.pml -- renewals and nodes in quarantine: snapshots, spent leases, clocks that step within the window.  N = 3, q = 2.
 *
 * Two clients ask for one key, hold it, renew and release it; requests take any time. The run is bounded by one attempt for each
 * client and by -DRESTARTS=n restarts; time and renewals are not. Lease and quarantine last TTL ticks.
 *
 * State per node:    own, rem  owner of the lease and ticks left of it. A spent lease stays with its owner's name, so that a
 *                              snapshot can bring it back;  q  ticks of quarantine left;  sown, srem  the snapshot of node 2
 * State per client:  val  ticks of trust left;  age  ticks since the round of requests began;
 *                    ls   ticks until the expiry that each node last confirmed to it
 * Restarts begin the new memory at once, which is the shortest quarantine. Nodes 0 and 1 restart empty.
 *
 * Rules
 *   Acquire    outside quarantine, where no other lease lives.
 *   Renew      outside quarantine: one's own lease, or a free node. In quarantine it counts only where now + MARGIN lies before the
 *              expiry that this node last confirmed to the client, whoever the node's memory says owns the lease; what a snapshot
 *              says gives way then, and expiries only grow.
 *   Revoke     (-DREVOKE) an operator who saw client 1's lease on a quorum ends it, on any nodes, whenever it gets there. Where the
 *              lease was, the key stays taken until it is over, or with -DFREE is free at once; there and elsewhere the node
 *              refuses client 1 from then on, as long as it remembers.
 * Checked: the two clients are never trusted at once. Once a quorum has ended the lease, and one of them had it, client 1 is trusted
 * for no longer than what was left on those that had it, unless a node restarted meanwhile; with -DFREE that is what
 * is promised about the two.
 *
 *   -DSNAP       node 2 comes back from any older snapshot; otherwise empty
 *   -DJIT        a node's clock reads real time or one tick more, anew for every request; trust is TTL-1 ticks
 *   -DMARGIN=m   (0)
 *   -DONLY2      only node 2 restarts
 * Runs that break a rule, and must be refuted
 *   -DREVOKE -DNOTOMB    a node that ended the lease takes a late renewal where the key is free
 *   -DREVOKE -DONLYHELD  only nodes that had the lease refuse client 1
 *   -DOLD -DSNAP one's own lease is extended whether spent or not, in quarantine or not                    CE-24
 *   -DJIT        without a margin                                                                           CE-25
 */
#define N 3
#define Q 2
#ifndef TTL
#define TTL 2
#endif
#ifdef JIT
#define V (TTL-1)
#define READ if :: o = 0 :: o = 1 fi
#else
#define V TTL
#define READ skip
#endif
#ifndef MARGIN
#define MARGIN 0
#endif
#define MAX(x,y) ((x) > (y) -> (x) : (y))
#define BIT(n) (1 << (n))
#define LS(i,n) ls[(i)*3+(n)]
byte own[N], rem[N], q[N];
#ifdef SNAP
byte sown, srem;
#endif
byte age[3], val[3];
byte ls[9];                     /* ticks until the expiry that node n last confirmed to client i */

#ifdef REVOKE
#define KEPT 3                  /* taken, and nobody's */
bool ended[N], lost;            /* node n refuses client 1; one of them restarted since */
byte done, had, left;           /* nodes that were told, that had the lease, and for how long they had it */
#define REVOKED (done >= Q && had > 0 && !lost)
#define WITHIN  assert(!REVOKED || val[1] <= left)
#define RESTART(n) lost = lost || done > 0; ended[n] = false
#else
#define WITHIN skip
#define RESTART(n) skip
#endif
#if defined(REVOKE) && !defined(NOTOMB)
#define REFUSED (id == 1 && ended[n])
#else
#define REFUSED false
#endif
#ifdef FREE
inline mutex() { assert(val[3 - id] == 0 || had > 0); WITHIN }
#else
inline mutex() { assert(val[3 - id] == 0); WITHIN }
#endif
#define TAKE own[n] = id; rem[n] = TTL + o; LS(id,n) = rem[n]; g++
#define GROW own[n] = id; rem[n] = MAX(rem[n], TTL + o); LS(id,n) = rem[n]; g++
#define SPENT (rem[n] <= o)
#define QUAR  (q[n] > o)
#define SURE  (LS(id,n) > o + MARGIN)

inline acquire() {
  READ;
  if
  :: REFUSED || QUAR -> skip
  :: !REFUSED && !QUAR && own[n] != 0 && own[n] != id && !SPENT -> skip
  :: !REFUSED && !QUAR && !(own[n] != 0 && own[n] != id && !SPENT) -> TAKE
  fi;
  o = 0
}
#ifdef OLD
#define OWNOK true
#else
#define OWNOK (!QUAR || SURE)
#endif
#ifdef OLD
#define GHOST false
#else
#define GHOST (QUAR && SURE)
#endif
inline renew() {
  READ;
  if
  :: REFUSED -> skip
  :: !REFUSED && own[n] == id && OWNOK -> GROW
  :: !REFUSED && own[n] != id && own[n] != 0 && !SPENT && !GHOST -> skip               /* LOST */
  :: !REFUSED && own[n] != id && own[n] != 0 && !SPENT && GHOST -> GROW
  :: !REFUSED && own[n] != id && (own[n] == 0 || SPENT) && SURE -> TAKE         /* HEAL */
  :: !REFUSED && own[n] != id && (own[n] == 0 || SPENT) && !SURE && !QUAR -> TAKE
  :: else -> skip
  fi;
  o = 0
}
inline release() { if :: own[n] == id -> own[n] = 0; rem[n] = 0 :: else fi }

/* any order, any subset; client 1 comes to node 0 before node 1 (and with EMPTY to 1 before 2) */
#ifdef SNAP
#define ORD2 true
#else
#define ORD2 (id > 1 || (k & 2))
#endif
#define ROUND(op) k = 0; \
  do :: atomic { !(k & 1) -> k = k | 1; n = 0; op(); n = 0 } \
     :: atomic { !(k & 2) && (id > 1 || (k & 1)) -> k = k | 2; n = 1; op(); n = 0 } \
     :: atomic { !(k & 4) && ORD2 -> k = k | 4; n = 2; op(); n = 0 } \
     :: atomic { id == 1 && !(k & 1) -> k = k | 1 } \
     :: atomic { id == 1 && (k & 1) && !(k & 2) -> k = k | 2 } \
     :: k > 0 -> break od; k = 0

#define FORGET LS(id,0) = 0; LS(id,1) = 0; LS(id,2) = 0

proctype Client(byte id) {
  byte g, k, n, o;
  do
  :: atomic { g = 0; age[id] = 0 };
     ROUND(acquire);
     if
     :: atomic { g >= Q && age[id] < V -> val[id] = V - age[id]; g = 0; age[id] = 0; mutex() };
        do
        :: atomic { val[id] > 0 -> g = 0; age[id] = 0 };
           ROUND(renew);
           if
           :: atomic { g >= Q && val[id] > 0 && age[id] < V -> val[id] = MAX(val[id], V - age[id]); g = 0; age[id] = 0; mutex() }
           :: atomic { else -> g = 0; age[id] = 0 }
           fi
        :: atomic { val[id] == 0 -> FORGET; break }                       /* lost */
        :: atomic { val[id] = 0; g = 0; FORGET }; ROUND(release); break   /* released; messages may be late */
        :: atomic { val[id] = 0; g = 0; FORGET; break }                   /* crashed */
        od
     :: atomic { else -> g = 0; age[id] = 0; FORGET }; ROUND(release)
     fi;
     break
  od
}
#ifndef RESTARTS
#define RESTARTS 1
#endif
byte restarts;
#define CAN (restarts < RESTARTS)
#define DID restarts++
proctype Env() {
  do
#ifndef ONLY2
  :: atomic { CAN -> DID; own[0] = 0; rem[0] = 0; q[0] = TTL; RESTART(0) }
  :: atomic { CAN -> DID; own[1] = 0; rem[1] = 0; q[1] = TTL; RESTART(1) }
#endif
#ifdef SNAP
  :: atomic { CAN -> DID; own[2] = sown; rem[2] = srem; q[2] = TTL; RESTART(2) }
  :: atomic { CAN && own[2] != 0 -> sown = own[2]; srem = rem[2] }
#else
  :: atomic { CAN -> DID; own[2] = 0; rem[2] = 0; q[2] = TTL; RESTART(2) }
#endif
  od
}
#ifdef REVOKE
#ifdef FREE
#define LEAVE own[n] = 0; rem[n] = 0
#else
#define LEAVE own[n] = KEPT
#endif
#ifdef ONLYHELD
#define MARK(had) ended[n] = had
#else
#define MARK(had) ended[n] = true
#endif
inline revoke() {
  if
  :: own[n] == 1 -> MARK(true); had++; left = MAX(left, rem[n]); LEAVE
  :: else -> MARK(false)
  fi;
  done++; WITHIN
}
#define HAS(n) (own[n] == 1)
proctype Operator() {
  byte k, n;
  (HAS(0) && HAS(1)) || (HAS(0) && HAS(2)) || (HAS(1) && HAS(2));
  do
  :: atomic { !(k & 1) -> k = k | 1; n = 0; revoke(); n = 0 }
  :: atomic { !(k & 2) -> k = k | 2; n = 1; revoke(); n = 0 }
  :: atomic { !(k & 4) -> k = k | 4; n = 2; revoke(); n = 0 }
  :: break
  od
}
#endif
/* Where the rule does not look at the owner of a spent lease, the name goes with it: same behaviour, fewer states. */
#ifdef OLD
#define DROP(i)
#else
#define DROP(i) if :: rem[i] == 0 -> own[i] = 0 :: else fi;
#endif
inline dec(x) { if :: x > 0 -> x-- :: else fi }
proctype Clock() {
  do
  :: d_step {
       dec(rem[0]); dec(rem[1]); dec(rem[2]); dec(q[0]); dec(q[1]); dec(q[2]); DROP(0) DROP(1) DROP(2)
#ifdef SNAP
       dec(srem);
#ifndef OLD
       if :: srem == 0 -> sown = 0 :: else fi;
#endif
#endif
       dec(ls[3]); dec(ls[4]); dec(ls[5]); dec(ls[6]); dec(ls[7]); dec(ls[8]);
       dec(val[1]); dec(val[2]);
#ifdef REVOKE
       dec(left);
#endif
       if :: age[1] < TTL -> age[1]++ :: else fi; if :: age[2] < TTL -> age[2]++ :: else fi
     }
  od
}
init { atomic { run Client(1); run Client(2); run Env(); run Clock();
#ifdef REVOKE
  run Operator()
#endif
} }
