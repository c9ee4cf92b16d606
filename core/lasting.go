package core

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
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
	if mend := badCertificate(err); mend != "" {
		return mend
	}
	if strings.Contains(err.Error(), "all sentinels specified") && says(err, badLogin...) { // go-redis has no type for it
		return "give the client the Sentinels' user and password, which are not the server's: SentinelUsername and SentinelPassword, or before the host of a redis-sentinel:// URL"
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
	{[]string{"redis: nil"}, "no Sentinel knows a primary of that name: check master_name"},
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

// badCertificate says how to mend a TLS handshake that cannot succeed; empty if err is none.
func badCertificate(err error) string {
	const private = "give the client's TLS config the CA that signed the server's certificate (WithTLS; lockctl --ca)"
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return private
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return "dial the server by a name of its certificate, or say which it has (ServerName of WithTLS; lockctl --server-name)"
	}
	if _, ok := errors.AsType[x509.CertificateInvalidError](err); ok {
		return "renew the server's certificate, and check the clock of this machine"
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return "check the server's certificate, and " + private
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return "the server does not speak TLS on this port"
	}
	if isAlert(err) {
		return "the server refuses the TLS handshake: check the client's certificate (WithTLS; lockctl --cert) and TLS versions"
	}
	return ""
}

// isAlert reports whether the other side of a TLS connection ended it with an alert, whose type is not exported.
func isAlert(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "remote error"
}
