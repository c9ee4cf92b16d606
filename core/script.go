package core

import (
	"context"
	"crypto/sha1" // what EVALSHA names scripts by; nothing depends on its strength
	_ "embed"
	"encoding/hex"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed lua/prelude.lua
	prelude string
	//go:embed lua/acquire.lua
	acquireLua string
	//go:embed lua/renew.lua
	renewLua string
	//go:embed lua/release.lua
	releaseLua string
	//go:embed lua/complete.lua
	completeLua string
	//go:embed lua/provision.lua
	provisionLua string

	acquireScript   = newScript(OpAcquire, prelude+acquireLua)
	renewScript     = newScript(OpRenew, prelude+renewLua)
	releaseScript   = newScript(OpRelease, releaseLua)
	completeScript  = newScript(OpComplete, prelude+completeLua)
	provisionScript = newScript(opProvision, provisionLua)
)

// A script runs atomically on one node; see the head of each .lua file for its contract. Scripts are
// idempotent per attempt, so a request may arrive twice.
type script struct {
	source string
	sha    any // boxed once: it goes into every argument list
	op     OpKind
}

func newScript(op OpKind, source string) *script {
	sum := sha1.Sum([]byte(source))
	return &script{source: source, sha: hex.EncodeToString(sum[:]), op: op}
}

// args is the argument list of EVALSHA with room for n script arguments.
func (s *script) args(n int, keys ...any) []any {
	a := make([]any, 0, 3+len(keys)+n)
	a = append(a, evalsha, s.sha, len(keys)) // small integers are not allocated
	return append(a, keys...)
}

var evalsha any = "evalsha"

// once is a command that go-redis must not send again by itself: a retry would spend the node timeout
// on a node that is in trouble, and deliver late.
type once struct{ *redis.StringCmd }

func (once) NoRetry() bool { return true }

// run evaluates s on client. It may block for as long as the client's own timeouts allow, whatever ctx says.
func (s *script) run(ctx context.Context, client redis.UniversalClient, args []any) (string, error) {
	cmd := redis.NewStringCmd(ctx, args...)
	err := client.Process(ctx, once{cmd})
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		full := append([]any{"eval", s.source}, args[2:]...)
		cmd = redis.NewStringCmd(ctx, full...)
		err = client.Process(ctx, once{cmd})
	}
	if err != nil {
		return "", err
	}
	return cmd.Val(), nil
}

// A vote is what one node answered in one round.
type vote struct {
	verdict Verdict
	clock   int64         // server wall clock, µs; 0 where the reply has none
	token   uint64        // granted: token on that node; done: ballot of the record
	expiry  int64         // granted, renewed: logical expiry, server ms
	rest    time.Duration // held, quarantined: time left
	history string        // granted: replication history of the node, "-" without guard
	owner   string        // held: the attempt that holds it,
	carried string        // and what its holder carries
	record  *nodeRecord   // granted in recovery, done: the completion record on that node
	err     error
	latency time.Duration
	skew    time.Duration // node's wall clock minus ours at the answer
	slept   bool          // renewed: shows that our clock stood still meanwhile
}

// nodeRecord is a completion record as one node holds it.
type nodeRecord struct {
	ballot uint64
	rest   time.Duration
	Record
}

// clone is the record for the caller, who may change it while requests that carry it are under way.
func (r *nodeRecord) clone() *Record { return &Record{r.Token, slices.Clone(r.Result)} }

var errBadReply = errors.New("reply is not one of lockkit's scripts'")

// parse reads a script's reply; its grammar stands at the head of each .lua file.
func parse(reply string) vote {
	word, rest, _ := strings.Cut(reply, " ")
	v := vote{verdict: verdictOf[word]}
	f := fields{rest: rest}
	if v.verdict == Failed {
		return vote{err: errBadReply}
	}
	if rest == "" && (word == "OK" || word == "AGAIN" || word == "GONE") { // what release answers
		return v
	}
	v.clock = f.int()
	if word != "CLOCK" {
		v.clock *= 1000
	}
	switch word {
	case "HEALED", "WAIT":
		v.expiry = f.int()
	case "HELD":
		v.rest = f.ms()
		v.owner = f.word()
		if len(f.rest) <= maxCarried {
			v.carried = f.rest
		}
	case "QUARANTINED":
		v.rest = f.ms()
	case "DONE":
		v.record = f.record()
		v.token = v.record.ballot
	case "OK":
		v.grant(&f)
	}
	if f.bad {
		return vote{verdict: Failed, err: errBadReply}
	}
	return v
}

// grant reads what follows "OK now": nothing (complete), an expiry (renew), or a whole grant (acquire).
func (v *vote) grant(f *fields) {
	switch strings.Count(f.rest, " ") {
	case 0:
		if f.rest != "" {
			v.expiry = f.int()
		}
	default:
		v.token = uint64(f.int())
		v.expiry = f.int()
		v.history = f.word()
		f.bad = f.bad || v.history == ""
		if f.rest != "" {
			v.record = f.record()
		}
	}
}

// fields cuts a reply at its spaces.
type fields struct {
	rest string
	bad  bool
}

func (f *fields) word() string {
	w, rest, _ := strings.Cut(f.rest, " ")
	f.rest = rest
	return w
}

func (f *fields) int() int64 {
	n, err := strconv.ParseUint(f.word(), 10, 63)
	f.bad = f.bad || err != nil
	return int64(n)
}

func (f *fields) ms() time.Duration { return time.Duration(f.int()) * time.Millisecond }

func (f *fields) record() *nodeRecord {
	r := &nodeRecord{ballot: uint64(f.int()), rest: f.ms()}
	r.Token = uint64(f.int())
	if f.rest != "" {
		r.Result = []byte(f.rest)
	}
	return r
}
