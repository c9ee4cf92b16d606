package testutil

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2/server"
)

// identity is the part of a node that INFO reports, guarded by Node.mu.
type identity struct {
	runID, replid string
	started       time.Time
	replica       bool
	policy        string
	maxmemory     int64
	version       string            // empty: not reported
	refusals      map[string]string // the errors that Node.Refuse sets, by command
}

func newIdentity() identity {
	id := identity{policy: "noeviction", version: "7.0.15"}
	id.restart(time.Now())
	return id
}

// restart sets the values of a node that restarted at now.
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

// section returns a section of INFO, or "" if there is none of that name.
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

// preHook answers the commands that miniredis must not: refused commands, INFO (miniredis reports too little) and
// PUBLISH. It reports whether it has answered. miniredis calls it before every command, including those that scripts
// call. If miniredis runs the script itself, it is locked during the call.
func (n *Node) preHook(peer *server.Peer, cmd string, args ...string) bool {
	n.mu.Lock()
	refusal := n.identity.refusals[cmd]
	n.mu.Unlock()
	if refusal != "" {
		peer.WriteError(refusal)
		return true
	}

	switch cmd {
	case "PUBLISH", "SPUBLISH":
		if len(args) == 2 {
			peer.WriteInt(n.publish(messageKind(cmd), args[0], args[1]))
			return true
		}
	case "INFO":
		peer.WriteBulk(n.info(args))
		return true
	}

	return false
}

// info returns the text of INFO with the given sections, or with all if there are none.
func (n *Node) info(sections []string) string {
	wanted := map[string]bool{}
	for _, s := range sections {
		wanted[strings.ToLower(s)] = true
	}

	all := len(sections) == 0 || wanted["default"] || wanted["all"] || wanted["everything"]

	var text []string
	n.mu.Lock()
	defer n.mu.Unlock()

	for _, name := range []string{"server", "memory", "replication"} {
		if all || wanted[name] {
			text = append(text, n.identity.section(name))
		}
	}

	return strings.Join(text, "\r\n")
}
