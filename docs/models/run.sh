#!/usr/bin/env bash
# Runs the models, and compares each verdict with the one expected: ./run.sh quick|deep|all [MODEL]
# A search that was cut short is unfinished, never a pass. Environment: T seconds of CPU a run (900), MEM MB a run (9000), SPIN, CC.
set -u
cd "$(dirname "$0")"
what=${1:-quick} only=${2:-} bad=0

run() { # run LEVEL EXPECTED MODEL FLAGS...
  local level=$1 want=$2 model=$3; shift 3
  [[ $what == all || $what == "$level" ]] || return 0
  [[ -z $only || $only == "$model" ]] || return 0
  local dir="build/$model${*// /}" got
  dir=${dir// /}
  mkdir -p "$dir" && cp "$model.pml" "$dir/m.pml"
  got=$(cd "$dir" || exit
    "${SPIN:-spin}" -a "$@" m.pml >spin.out 2>&1 || exec echo broken
    "${CC:-gcc}" -w -O2 -DSAFETY -DCOLLAPSE -DMEMLIM="${MEM:-9000}" -o pan pan.c || exec echo broken
    ulimit -t "${T:-900}" # a machine that does other work takes longer, and does not cut a search short
    ./pan -E -m1000000 -w25 >out 2>&1
    if grep -q 'assertion violated' out; then echo refuted
    elif grep -q 'errors: 0' out && ! grep -qE 'max search depth|out of memory|not completed' out; then echo holds
    else echo unfinished; fi)
  rm -f "$dir"/pan*
  printf '%-10s %-78s %11s states %6s s' "$got" "$model $*" \
    "$(awk '/states, stored/ {print $1}' "$dir/out" 2>/dev/null)" "$(awk '/elapsed time/ {print $4}' "$dir/out" 2>/dev/null)"
  if [[ $got == "$want" ]]; then echo; else echo "   NOT AS EXPECTED: $want"; bad=1; fi
}

# Agreement without time.
run quick holds   complete -DA=2 -DK=2 -DHI=2 -DLATE
run quick holds   complete -DA=2 -DK=0 -DDUPACQ -DWBTOKEN
run deep  holds   complete -DA=3 -DK=0
for flag in MINORITYDONE FDROP IGNORE LOWEST NOF OWNF OLDBALLOT NOWB WBANY WBSPENT DUPACQ; do
  run quick refuted complete -DA=3 -DK=0 -D$flag
done

# Records, and nodes that forget. The second group has renewals: a holder and a client that settles an older record.
any=(-DTTL=1 -DHEARD)
held=(-DTTL=2 -DSEED -DROLES -DSTART -DHEARD -DRENEW)
run quick holds   records "${any[@]}"
run deep  holds   records -DTTL=1
run deep  holds   records "${any[@]}" -DSNAP
run deep  holds   records "${any[@]}" -DUNDO
run quick refuted records "${any[@]}" -DOLDCOVER
run quick refuted records "${any[@]}" -DANYTIME
run quick holds   records "${held[@]}"
run deep  holds   records "${held[@]}" -DRELEASED
run deep  holds   records "${held[@]}" -DLOSSES=2 -DLOSSY=3
run quick refuted records "${held[@]}" -DLATEREPLY
run quick refuted records "${held[@]}" -DKNOWN -DRELEASED
run quick refuted records "${held[@]}" -DNOAGE
run quick refuted records "${held[@]}" -DUNDOSENT

# Renewals in quarantine.
run quick holds   renewals -DSNAP -DONLY2
run deep  holds   renewals -DSNAP -DRESTARTS=2
run quick refuted renewals -DSNAP -DONLY2 -DOLD
run deep  holds   renewals -DTTL=3 -DJIT -DONLY2 -DMARGIN=1
run deep  refuted renewals -DTTL=3 -DJIT -DONLY2
run quick holds   renewals -DREVOKE -DRESTARTS=0
run deep  holds   renewals -DREVOKE -DRESTARTS=0 -DFREE
run deep  holds   renewals -DREVOKE -DONLY2
for flag in NOTOMB ONLYHELD; do run quick refuted renewals -DREVOKE -DRESTARTS=0 -D$flag; done
run quick refuted renewals -DREVOKE -DRESTARTS=0 -DFREE -DNOTOMB

# Fencing tokens.
run quick holds   tokens -DREJOIN
run deep  holds   tokens -DREJOIN -DUNDO
run quick refuted tokens -DREJOINLOW
run quick refuted tokens -DREJOINEARLY
run quick refuted tokens -DREJOIN -DUNDOHELD

# The length of the quarantine.
again=(-DLONG=2 -DLOWER -DAGAIN -DLOSSES=1)
run quick holds   maxttl -DLONG=2
run quick holds   maxttl -DLONG=2 -DLOWER
run quick holds   maxttl "${again[@]}" -DCOARSE
run deep  holds   maxttl "${again[@]}"
run deep  holds   maxttl -DLONG=2 -DLOWER -DAGAIN -DLOSSES=2 -DCOARSE
run deep  holds   maxttl -DLONG=3 -DLOWER
for flag in OWNMAX FIRST COUNTALL UNHEARD; do run quick refuted maxttl -DLONG=2 -D$flag; done
for flag in NOWAIT UNSEEN UNCHECKED; do run quick refuted maxttl -DLONG=2 -DLOWER -D$flag; done
for flag in KEPT SHARED; do run quick refuted maxttl "${again[@]}" -DCOARSE -D$flag; done

# Requests of an attempt that has ended.
run quick holds   late
for flag in UNLOCKED NOTOMB; do run quick refuted late -D$flag; done

# Requests in batches.
run quick holds   batch
run quick holds   batch -DSPARE
run quick holds   batch -DSPARE -DONEFLIGHT
run quick holds   batch -DSPARE -DFOUND
run quick holds   batch -DFOUND
run quick holds   batch -DDOUBLED
run quick refuted batch -DNEVER
run quick refuted batch -DNEVER -DONEFLIGHT
for flag in TIMEDOUT ONLYACQ NODROP DOUBLED NAMELESS GONELOST FIRSTLOST ONEBYTE; do run quick refuted batch -DSPARE -D$flag; done
for flag in UNNOTED GONELOST ONEBYTE; do run quick refuted batch -D$flag; done
for flag in RENEWED ANSWERED DOUBLED; do run quick refuted batch -DFOUND -D$flag; done
run quick refuted batch -DDOUBLED -DAGAINSURE
run quick holds   stamps
run quick holds   stamps -DLOSS
run quick holds   stamps -DW=0 -DSTEP=0
run quick holds   stamps -DENDS
for flag in EARLYSTAMP REREAD; do run quick refuted stamps -D$flag; done
for flag in OLDGUARD OLDSTAMP; do run quick refuted stamps -DLOSS -D$flag; done
run quick refuted stamps -DW=0 -DSTEP=0 -DOLDTIME
for flag in CHECKFIRST NOCHECK LIFE=4; do run quick refuted stamps -DENDS -D$flag; done

exit $bad
