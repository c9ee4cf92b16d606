/* late.pml -- what may still arrive at one node when an attempt has ended.
 *
 * An attempt with token 1 asks this node for the key, or leaves it out because others are enough. It holds, renews, and at last
 * releases the key or completes it. Its requests arrive at any time and in any order, each of them once. Somebody else may take
 * the node and give it back. No memory is lost, and a tombstone outlives what is under way: the window on clocks refuses the rest.
 *
 * State of the node:    own  owner of the lease, 0 = none;  F  fence;  record;  tomb  tombstone of the attempt
 * State of the attempt: held; asked  the node was sent a request that may take it, so a release has to go there;
 *                       due  the watchdog has decided to renew;  acq, ren, rel, com  requests under way
 * Checked: when the attempt has ended and nothing is under way, the node is not its own.
 *
 * Flags that break a rule, and must be refuted
 *   -DUNLOCKED   a renewal that was decided on is sent although the lease has ended since
 *   -DNOTOMB     a COMPLETE that is refused leaves no tombstone
 */
byte own, F;
bit record, tomb;
bit held = 1, asked, due, acq, ren, rel, com;

#ifdef UNLOCKED
#define MAYSEND true
#else
#define MAYSEND held
#endif
#ifdef NOTOMB
#define REFUSED skip
#else
#define REFUSED tomb = 1
#endif

proctype Client() {
  if :: asked = 1; acq = 1 :: skip fi;
  do
  :: atomic { held && !due -> due = 1 }
  :: atomic { due && !ren -> due = 0; if :: MAYSEND -> asked = 1; ren = 1 :: else fi }
  :: atomic { held -> held = 0; rel = asked }          /* released */
  :: atomic { held -> held = 0; com = 1 }              /* completed: this goes to all nodes */
  od
}

proctype Node() {
  do
  :: atomic { acq -> acq = 0;
       if
       :: own != 2 && !record && !tomb -> own = 1; F = 1
       :: else
       fi }
  :: atomic { ren -> ren = 0;
       if
       :: own != 2 && !(own == 0 && tomb) -> own = 1; if :: F == 0 -> F = 1 :: else fi
       :: else
       fi }
  :: atomic { rel -> rel = 0; tomb = 1; if :: own == 1 -> own = 0 :: else fi }
  :: atomic { com -> com = 0;
       if
       :: own == 2 || F > 1 -> REFUSED; if :: own == 1 -> own = 0 :: else fi
       :: else -> record = 1; F = 1; own = 0; tomb = 1
       fi }
  :: atomic { own == 0 && !record -> own = 2; F = 2 }  /* somebody else */
  :: atomic { own == 2 -> own = 0 }
  :: atomic { own == 1 -> own = 0 }                    /* the lease runs out */
  :: atomic { !held && !due && !acq && !ren && !rel && !com -> assert(own != 1); break }
  od
}

init { atomic { run Client(); run Node() } }
