package core

import (
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// lasting says what is wrong with a server that answers err, and how to mend it; nil where it may pass by
// itself (BUSY, LOADING, MASTERDOWN, no connection), or nobody knows.
func lasting(err error) error {
	if mend := mending(err); mend != "" {
		return fmt.Errorf("%w: %s", err, mend)
	}
	return nil
}

// mending says how to mend a server that answers err; empty where lasting has nothing to say.
func mending(err error) string {
	if err == nil {
		return ""
	}
	if badTLS(err) {
		return "check the server's certificate and port, and the CA and name that the client asks for (WithTLS; lockctl --ca, --server-name)"
	}
	if strings.Contains(err.Error(), "all sentinels specified") { // go-redis has no type for it
		switch {
		case errors.Is(err, redis.Nil):
			return "no Sentinel knows a primary of that name: check master_name"
		case says(err, badLogin...):
			return "give the client the Sentinels' user and password, which are not the server's: SentinelUsername and SentinelPassword, or before the host of a redis-sentinel:// URL"
		}
	}
	for _, l := range lastingReplies {
		if says(err, l.reply...) {
			return l.mend
		}
	}
	if mayNot(err) {
		return "its user lacks a right: give it the ACL of docs/operations.md, with the key prefix in use"
	}
	return ""
}

// badLogin is how a server refuses credentials.
var badLogin = []string{"NOAUTH", "WRONGPASS", "AUTH <password> called without", "Client sent AUTH", "invalid password", "invalid username",
	"Protocol error: unauthenticated"}

var lastingReplies = []struct {
	reply []string // how it begins
	mend  string
}{
	{badLogin,
		"give the client the server's user and password"},
	{[]string{"DB index is out of range", "invalid DB index", "SELECT is not allowed in cluster mode"},
		"give the client a database that the server has"},
	{[]string{"MOVED"}, "the server belongs to a Redis Cluster: pass one redis.ClusterClient, or one URL of redis-cluster://, for all of the Cluster"},
	{[]string{"This instance has cluster support disabled"},
		"the client takes it for a Redis Cluster, as redis.NewUniversalClient does with several addresses: pass a redis.Client for each server, or a URL of redis://"},
	{[]string{"READONLY"}, "the server is a replica; a node must be a master of its own"},
	{[]string{"unknown command"}, "the server (a Sentinel, a proxy?) does not know a command that lockkit needs"},
}

// mayNot reports whether err is a server's refusal for want of a right. A command that was renamed counts as
// denied.
func mayNot(err error) bool {
	return says(err, "NOPERM", "unknown command", "ACL failure in script", "The user executing the script")
}

// says reports whether err is a reply of Redis that begins with one of starts, or with a script's trace that
// leads to it: before version 7 the reason of a script's failure stands last.
func says(err error, starts ...string) bool {
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

// badTLS reports whether err is a handshake that will not succeed before somebody mends one of its sides.
func badTLS(err error) bool {
	_, certificate := errors.AsType[*tls.CertificateVerificationError](err)
	_, plain := errors.AsType[tls.RecordHeaderError](err)
	return certificate || plain
}
