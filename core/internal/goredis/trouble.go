package goredis

import (
	"crypto/tls"
	"errors"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// A trouble is the meaning of a server's error.
type trouble struct {
	replies []string // how the reply may begin
	Kind    string   // "credentials", "tls", or empty
	Fix     string   // how to fix it; empty if unknown
	passes  bool     // it may pass on its own (BUSY, LOADING, MASTERDOWN, no connection), or while the server is a node

	// MayHaveMoved is set if the server is the wrong one, or cannot serve. The name or the topology by which it was
	// found may lead to another server by now.
	MayHaveMoved bool
}

// badLogin are the beginnings of replies that refuse credentials.
var badLogin = []string{
	"NOAUTH",
	"WRONGPASS",
	"AUTH <password> called without",
	"Client sent AUTH",
	"invalid password",
	"invalid username",
	"Protocol error: unauthenticated",
}

var troubles = []trouble{
	{
		replies:      badLogin,
		Kind:         "credentials",
		Fix:          "give the client the server's user and password",
		MayHaveMoved: true,
	},
	{
		replies:      []string{"DB index is out of range", "invalid DB index", "SELECT is not allowed in cluster mode"},
		Fix:          "give the client a database that the server has",
		MayHaveMoved: true,
	},
	{
		replies: []string{"MOVED"},
		Fix: "the server belongs to a Redis Cluster: " +
			"pass one redis.ClusterClient, or one URL of redis-cluster://, for all of the Cluster",
		MayHaveMoved: true,
	},
	{
		replies: []string{"This instance has cluster support disabled"},
		Fix: "the client takes it for a Redis Cluster, as redis.NewUniversalClient does with several addresses: " +
			"pass a redis.Client for each server, or a URL of redis://",
		MayHaveMoved: true,
	},
	{
		replies:      []string{"LUA lacks"},
		Fix:          "its Lua is not that of Redis, and lockkit's scripts cannot run in it: use Redis, or Valkey",
		MayHaveMoved: true,
	},
	{
		replies:      []string{"READONLY"},
		Fix:          "the server is a replica; a node must be a master of its own",
		MayHaveMoved: true,
	},
	{
		replies:      []string{"unknown command"},
		Fix:          "the server (a Sentinel, a proxy?) does not know a command that lockkit needs",
		MayHaveMoved: true,
	},
	{
		replies: denials,
		Fix:     "its user lacks a right: give it the ACL of docs/operations.md, with the key prefix in use",
	},
	{
		replies: []string{"OOM"},
		Fix: "raise maxmemory, or find out who fills it: " +
			"lockkit's own keys go by themselves, do not delete them",
		passes: true,
	},
	{
		replies:      []string{"NOREPLICAS"},
		Fix:          "bring its replicas back: min-replicas-to-write keeps it from serving without them",
		passes:       true,
		MayHaveMoved: true,
	},
	{
		replies:      []string{"MISCONF"},
		Fix:          "it cannot save to its disk: look at the disk, and at the server's log",
		passes:       true,
		MayHaveMoved: true,
	},
	{
		replies:      []string{"LOADING", "MASTERDOWN", "CLUSTERDOWN"},
		passes:       true,
		MayHaveMoved: true,
	},
}

// TroubleOf returns the meaning of a server's error. An unknown error may pass.
func TroubleOf(err error) trouble {
	if isTLS, lasts := badTLS(err); isTLS {
		return trouble{
			Kind:   "tls",
			passes: !lasts,
			Fix: "check the server's certificate and port, and the CA and name that the client asks for " +
				"(WithTLS; lockctl --ca, --server-name); it may ask for the client's, too (--cert)",
		}
	}
	if t, known := sentinelTrouble(err); known {
		return t
	}

	isMeant := func(t trouble) bool { return HasReplyPrefix(err, t.replies...) }
	if i := slices.IndexFunc(troubles, isMeant); i >= 0 {
		return troubles[i]
	}
	return trouble{passes: true}
}

// sentinelTrouble returns the meaning of an error of a client that asks Sentinels, if it is known.
func sentinelTrouble(err error) (t trouble, known bool) {
	// go-redis has no type for this error.
	if err == nil || !strings.Contains(err.Error(), "all sentinels specified") {
		return trouble{}, false
	}

	switch {
	case errors.Is(err, redis.Nil):
		return trouble{Fix: "no Sentinel knows a primary of that name: check master_name"}, true
	case HasReplyPrefix(err, badLogin...):
		return trouble{
			Kind: "credentials",
			Fix: "give the client the Sentinels' user and password, which are not the server's: " +
				"SentinelUsername and SentinelPassword, or before the host of a redis-sentinel:// URL",
		}, true
	}
	return trouble{}, false
}

// badTLS reports whether err comes from a TLS handshake, and whether all later ones fail until one of the sides is
// fixed.
func badTLS(err error) (is, lasts bool) {
	if err == nil {
		return false, false
	}

	_, certificate := errors.AsType[*tls.CertificateVerificationError](err)
	_, plain := errors.AsType[tls.RecordHeaderError](err)
	is = strings.Contains(err.Error(), "tls: ") || strings.Contains(err.Error(), "x509: ")
	return is, certificate || plain
}

// A lastingError is a server's error with the way to fix it.
type lastingError struct {
	error
	fix string
}

func (e *lastingError) Error() string { return e.error.Error() + ": " + e.fix }

func (e *lastingError) Unwrap() error { return e.error }

// AsLasting adds to err the way to fix it, unless err already has it. It returns nil if the trouble may pass on its
// own, or is unknown.
func AsLasting(err error) error {
	if lasting, ok := errors.AsType[*lastingError](err); ok {
		return lasting
	}
	if t := TroubleOf(err); !t.passes {
		return &lastingError{err, t.Fix}
	}
	return nil
}
