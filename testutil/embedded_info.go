package testutil

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2/server"
)

// identity is what INFO tells about a node, guarded by Node.mu.
type identity struct {
	runID, replid string
	started       time.Time
	replica       bool
	policy        string
	maxmemory     int64
	version       string            // empty: not reported
	refused       map[string]string // commands that are answered with an error
}

func newIdentity() identity {
	id := identity{policy: "noeviction", version: "7.0.15"}
	id.restart(time.Now())
	return id
}

func (id *identity) restart(now time.Time) {
	id.runID = newID()
	id.replid = newID()
	id.started = now
}

// newID returns 40 hex digits, the form of run_id and master_replid.
func newID() string {
	var b [20]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

func (id *identity) section(name string) string {
	switch name {
	case "server":
		version := ""
		if id.version != "" {
			version = "redis_version:" + id.version + "\r\n"
		}
		return fmt.Sprintf("# Server\r\n%sredis_mode:standalone\r\n"+
			"run_id:%s\r\ntcp_port:6379\r\nuptime_in_seconds:%d\r\n",
			version, id.runID, int(time.Since(id.started).Seconds()))
	case "memory":
		return fmt.Sprintf("# Memory\r\nmaxmemory:%d\r\nmaxmemory_policy:%s\r\n", id.maxmemory, id.policy)
	case "replication":
		role := "role:master\r\n"
		if id.replica {
			role = "role:slave\r\nmaster_link_status:up\r\n"
		}
		return fmt.Sprintf("# Replication\r\n%sconnected_slaves:0\r\nmaster_replid:%s\r\n", role, id.replid)
	}
	return ""
}

// answerInfo is miniredis' hook before every command, those of scripts
// included; miniredis has no INFO of its own that tells enough. It runs with
// miniredis locked when a script calls, and reports whether it has answered.
func (n *Node) answerInfo(peer *server.Peer, cmd string, args ...string) bool {
	n.mu.Lock()
	refusal := n.id.refused[cmd]
	n.mu.Unlock()
	if refusal != "" {
		peer.WriteError(refusal)
		return true
	}
	switch cmd {
	case "PUBLISH", "SPUBLISH":
		if len(args) == 2 {
			kind := strings.ToLower(strings.Replace(cmd, "PUBLISH", "MESSAGE", 1))
			peer.WriteInt(n.publish(kind, args[0], args[1]))
			return true
		}
	case "INFO":
		peer.WriteBulk(n.info(args))
		return true
	}
	return false
}

// info returns the text of INFO, for the given sections or for all.
func (n *Node) info(args []string) string {
	wanted := map[string]bool{}
	for _, a := range args {
		wanted[strings.ToLower(a)] = true
	}
	all := len(args) == 0 || wanted["default"] || wanted["all"] || wanted["everything"]
	var text []string
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, name := range []string{"server", "memory", "replication"} {
		if all || wanted[name] {
			text = append(text, n.id.section(name))
		}
	}
	return strings.Join(text, "\r\n")
}
