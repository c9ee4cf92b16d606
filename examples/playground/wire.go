package main

import (
	"fmt"
	"time"
)

// An Event is something that has happened: a line of JSON from a replica to the playground, from there to the page, and
// in the history that can be downloaded.
type Event struct {
	At      float64 `json:"at"` // ms since 1970; all processes are on one host
	Replica string  `json:"replica,omitempty"`
	Kind    string  `json:"kind"`
	Key     string  `json:"key,omitempty"`
	Slot    *int    `json:"slot,omitempty"`  // of the key, if it is a semaphore's
	Token   uint64  `json:"token,omitempty"` // fencing token; less than 2^53
	Text    string  `json:"text,omitempty"`
	Until   float64 `json:"until,omitempty"` // the lease is trusted until then, if it is not renewed
	Node    *int    `json:"node,omitempty"`
	Ms      float64 `json:"ms,omitempty"` // how long it took, or by how much

	Stats *Stats `json:"stats,omitempty"` // with isStats
}

// lock is the name of what is held: a key, or a slot of one.
func (e Event) lock() string {
	if e.Slot == nil {
		return e.Key
	}
	return fmt.Sprintf("%s slot %d", e.Key, *e.Slot)
}

// Kinds of what replicas tell.
const (
	isReady    = "ready"   // text = where it serves HTTP
	isStats    = "stats"   // a few times a second; the page sees what becomes of it in the State
	isWait     = "wait"    // somebody has waited for a key, for ms, and has it now
	isGrant    = "grant"   // trusted until until
	isRenew    = "renew"   // likewise
	isEnd      = "end"     // given back
	isLost     = "lost"    // text = why
	isRefused  = "refused" // text = why, after ms
	isTick     = "tick"    // a run of the job began; text = its tick
	isTask     = "task"    // key = the task; text = completed, after ms, or duplicate
	isElected  = "elected" // leads from now on
	isDeposed  = "deposed" // does not any more
	isError    = "error"   // text = what
	isWrite    = "write"   // told by the store: text = read, accepted, refused, or stale: accepted although it should not be
	isUpdate   = "update"  // told by the store, of one without a lock; text = "" or lost: it has overwritten another one
	isStarted  = "started" // a replica is up
	isKilled   = "killed"  // a replica is dead; text = why, if nobody asked for it
	isLeft     = "left"    // a replica has shut down
	isPaused   = "paused"  // a replica
	isResumed  = "resumed" // likewise
	isSkewed   = "skewed"  // the clock of a replica is ahead by ms
	isDown     = "node_down"
	isHung     = "node_paused"
	isUp       = "node_up"      // resumed, restarted with its data, or mended; text = which
	isEmptied  = "node_emptied" // restarted without its data
	isFlushed  = "node_flushed"
	isCut      = "node_cut"  // nobody hears of it any more, or the replica does not
	isSlow     = "node_slow" // by ms
	isBurst    = "burst"     // text = what comes
	isMode     = "mode"      // text = what is off
	isScene    = "scene"     // text = what a scenario is about to do
	isVerdict  = "verdict"   // text = the violation; empty = reset
	isScenario = "scenario"  // key = its name; text = begins, or how it ended
)

// Stats are how a replica is doing.
type Stats struct {
	Waiting []string   `json:"waiting"` // for these keys
	Nodes   []NodeStat `json:"nodes"`
	Wait    Histogram  `json:"wait"` // of how long acquisitions took that were granted
}

// A NodeStat is what a replica has heard of a node.
type NodeStat struct {
	Verdict string  `json:"verdict"` // the last
	RestMs  float64 `json:"restMs"`  // of its quarantine
	Ms      float64 `json:"ms"`      // it takes to answer
}

// A Histogram counts what is at most as long as each bound, in seconds, and more than the one before; the last count is of
// what is longer than all of them.
type Histogram struct {
	Bounds []float64 `json:"bounds"`
	Counts []uint64  `json:"counts"`
}

// An Order is what the playground tells a replica to do, as a line of JSON.
type Order struct {
	Do       string  `json:"do"` // skew or update
	Ms       float64 `json:"ms"` // ahead; or how long the update takes
	Key      string  `json:"key,omitempty"`
	WaitMs   float64 `json:"waitMs,omitempty"`   // for the key, at most
	Stubborn bool    `json:"stubborn,omitempty"` // it does not look whether it still has the lock when it writes
}

// A Command is what the page has the playground do.
type Command struct {
	Do      string  `json:"do"`
	Replica string  `json:"replica,omitempty"`
	Node    *int    `json:"node,omitempty"`
	Ms      float64 `json:"ms,omitempty"`
	N       int     `json:"n,omitempty"`
	Guard   *bool   `json:"guard,omitempty"`   // true = off, as in Unsafe
	Fencing *bool   `json:"fencing,omitempty"` // likewise
	Name    string  `json:"name,omitempty"`
}

// A State is all that the page shows, but for the timeline.
type State struct {
	Now      float64        `json:"now"`
	Began    float64        `json:"began"`  // when this playground began: another one has another time
	EndsAt   float64        `json:"endsAt"` // about; 0 = with Ctrl-C
	TTLMs    float64        `json:"ttlMs"`  // of leases
	Kind     string         `json:"kind"`   // of nodes
	Unsafe   Unsafe         `json:"unsafe"`
	Scenario string         `json:"scenario"` // that is under way
	Nodes    []NodeState    `json:"nodes"`
	Replicas []ReplicaState `json:"replicas"`
	Counters Counters       `json:"counters"`
	Wait     WaitState      `json:"wait"`
	Verdict  VerdictState   `json:"verdict"`
}

// Unsafe says what is turned off: true is off.
type Unsafe struct {
	Guard   bool `json:"guard"`
	Fencing bool `json:"fencing"`
}

// A NodeState is what the playground did to a node, and what replicas say of it.
type NodeState struct {
	I         int     `json:"i"`
	Addr      string  `json:"addr"`
	State     string  `json:"state"` // up, down, paused, cut or slow
	Votes     bool    `json:"votes"`
	Guard     string  `json:"guard"`
	LatencyMs float64 `json:"latencyMs"`
	Breaker   string  `json:"breaker"` // closed or open
}

// A ReplicaState is what a replica is doing.
type ReplicaState struct {
	Name    string   `json:"name"`
	State   string   `json:"state"` // up, down or paused
	SkewMs  float64  `json:"skewMs"`
	Leader  bool     `json:"leader"`
	Held    []string `json:"held"`
	Waiting []string `json:"waiting"`
	Cut     []int    `json:"cut"` // from these nodes
}

// A WaitState is how long acquisitions took that were granted.
type WaitState struct {
	P50     float64  `json:"p50"`
	P99     float64  `json:"p99"`
	Buckets []Bucket `json:"buckets"`
}

// A Bucket counts those that took at most Le, and more than the one before; Le 0 is that of all the others.
type Bucket struct {
	Le float64 `json:"le"`
	N  uint64  `json:"n"`
}

// A VerdictState is what the judge says.
type VerdictState struct {
	OK      bool   `json:"ok"`
	Text    string `json:"text"`
	Checked int    `json:"checked"` // so many leases and writes, all in all
}

// millis is an instant as Events have it.
func millis(t time.Time) float64 { return float64(t.UnixMicro()) / 1000 }

// instant is what millis was made of.
func instant(ms float64) time.Time { return time.UnixMicro(int64(ms * 1000)) }

func duration(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }

func inMillis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
