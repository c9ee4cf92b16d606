package goredis

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"slices"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/internal/faults"
)

// ErrOverloaded is the error of a request that was not sent because too many are under way.
var ErrOverloaded = errors.New("not asked, because too many requests are under way")

// A quotation is an error whose text is clipped. What it says of itself by its type is in the error that it wraps.
type quotation struct {
	error
	text string
}

func (q *quotation) Error() string { return q.text }
func (q *quotation) Unwrap() error { return q.error }

// quoted is err, of whose text a message quotes a part only if it is long.
func quoted(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	clipped := faults.Clip(text)
	if clipped == text {
		return err
	}
	return &quotation{err, clipped}
}

// Answered reports whether a request was: an error that Redis replied is an answer.
func Answered(err error) bool {
	if err == nil {
		return true
	}
	var reply redis.Error
	return errors.As(err, &reply)
}

// Unsent reports whether a request failed for want of a connection to send it on, which says nothing about
// the node.
func Unsent(err error) bool {
	return errors.Is(err, ErrOverloaded) || errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted)
}

// Broken reports whether a connection was made, and ended before the answer. Where none can be made, or nobody answers
// in time, it is of no use to ask again at once. go-redis shows of a greeting that failed what is in the error only.
func Broken(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// Moved reports whether a request failed in a way that may mean that another server has taken over. go-redis
// follows a redirection by itself, unless there were too many of them.
func Moved(err error) bool {
	switch {
	case err == nil || Unsent(err):
		return false
	case Answered(err):
		return redis.HasErrorPrefix(err, "CLUSTERDOWN") || redis.HasErrorPrefix(err, "MOVED")
	}
	return true
}

// TimedOut reports whether err reads like the end of a context.
func TimedOut(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// A trouble is what a server's error says about it.
type trouble struct {
	replies []string // how it begins
	Kind    string   // "credentials", "tls", or empty
	Mend    string   // empty = nobody knows
	passes  bool     // by itself (BUSY, LOADING, MASTERDOWN, no connection), or while it is a node
	// It is not the server to ask, or cannot serve, so that the name or the topology by which it was found may lead to another
	// one by now.
	Elsewhere bool
}

// badLogin is how a server refuses credentials.
var badLogin = []string{"NOAUTH", "WRONGPASS", "AUTH <password> called without", "Client sent AUTH", "invalid password", "invalid username",
	"Protocol error: unauthenticated"}

var troubles = []trouble{
	{replies: badLogin, Kind: "credentials", Mend: "give the client the server's user and password", Elsewhere: true},
	{replies: []string{"DB index is out of range", "invalid DB index", "SELECT is not allowed in cluster mode"},
		Mend: "give the client a database that the server has", Elsewhere: true},
	{replies: []string{"MOVED"}, Mend: "the server belongs to a Redis Cluster: pass one redis.ClusterClient, or one URL of redis-cluster://, for all of the Cluster", Elsewhere: true},
	{replies: []string{"This instance has cluster support disabled"},
		Mend: "the client takes it for a Redis Cluster, as redis.NewUniversalClient does with several addresses: pass a redis.Client for each server, or a URL of redis://", Elsewhere: true},
	{replies: []string{"LUA lacks"}, Mend: "its Lua is not that of Redis, and lockkit's scripts cannot run in it: use Redis, or Valkey", Elsewhere: true},
	{replies: []string{"READONLY"}, Mend: "the server is a replica; a node must be a master of its own", Elsewhere: true},
	{replies: []string{"unknown command"}, Mend: "the server (a Sentinel, a proxy?) does not know a command that lockkit needs", Elsewhere: true},
	{replies: denials, Mend: "its user lacks a right: give it the ACL of docs/operations.md, with the key prefix in use"},
	{replies: []string{"OOM"}, Mend: "raise maxmemory, or find out who fills it: lockkit's own keys go by themselves, do not delete them", passes: true},
	{replies: []string{"NOREPLICAS"}, Mend: "bring its replicas back: min-replicas-to-write keeps it from serving without them", passes: true, Elsewhere: true},
	{replies: []string{"MISCONF"}, Mend: "it cannot save to its disk: look at the disk, and at the server's log", passes: true, Elsewhere: true},
	{replies: []string{"LOADING", "MASTERDOWN", "CLUSTERDOWN"}, passes: true, Elsewhere: true},
}

// TroubleOf says what is wrong with a server that answers err.
func TroubleOf(err error) trouble {
	if tlsFails, lasts := badTLS(err); tlsFails {
		return trouble{Kind: "tls", passes: !lasts,
			Mend: "check the server's certificate and port, and the CA and name that the client asks for (WithTLS; lockctl --ca, --server-name); it may ask for the client's, too (--cert)"}
	}
	if err != nil && strings.Contains(err.Error(), "all sentinels specified") { // go-redis has no type for it
		switch {
		case errors.Is(err, redis.Nil):
			return trouble{Mend: "no Sentinel knows a primary of that name: check master_name"}
		case Says(err, badLogin...):
			return trouble{Kind: "credentials", Mend: "give the client the Sentinels' user and password, which are not the server's: SentinelUsername and SentinelPassword, or before the host of a redis-sentinel:// URL"}
		}
	}
	if i := slices.IndexFunc(troubles, func(t trouble) bool { return Says(err, t.replies...) }); i >= 0 {
		return troubles[i]
	}
	return trouble{passes: true}
}

// A lastingError says how to mend what a server answered.
type lastingError struct {
	error
	mend string
}

func (e *lastingError) Error() string { return e.error.Error() + ": " + e.mend }

func (e *lastingError) Unwrap() error { return e.error }

// Lasting returns err with how to mend it, which is said once. It returns nil if the trouble may pass by itself, or if nobody
// knows what it is.
func Lasting(err error) error {
	if said, ok := errors.AsType[*lastingError](err); ok {
		return said
	}
	if t := TroubleOf(err); !t.passes {
		return &lastingError{err, t.Mend}
	}
	return nil
}

// denials are a server's refusals for want of a right. A command that was renamed counts as denied.
var denials = []string{"NOPERM", "unknown command", "ACL failure in script", "The user executing the script"}

// Denied reports whether err is one of them.
func Denied(err error) bool { return Says(err, denials...) }

// Says reports whether err is a reply of Redis that begins with one of starts, or with a script's trace that
// leads to it: before version 7 the reason of a script's failure stands last.
func Says(err error, starts ...string) bool {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return false
	}
	text := strings.TrimPrefix(reply.Error(), "ERR ")
	if strings.HasPrefix(text, "Error running script") {
		text = text[strings.LastIndex(text, "@user_script")+1:]
		_, text, _ = strings.Cut(text, ": ")
		text = strings.TrimLeft(text, "-0123456789: ")
	}
	return slices.ContainsFunc(starts, func(start string) bool { return strings.HasPrefix(text, start) })
}

// badTLS reports whether err is of a TLS handshake, and whether none will succeed before somebody mends one of its sides.
func badTLS(err error) (is, lasts bool) {
	if err == nil {
		return false, false
	}
	_, certificate := errors.AsType[*tls.CertificateVerificationError](err)
	_, plain := errors.AsType[tls.RecordHeaderError](err)
	return strings.Contains(err.Error(), "tls: ") || strings.Contains(err.Error(), "x509: "), certificate || plain
}
