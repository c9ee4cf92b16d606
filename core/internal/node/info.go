package node

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/lockkit/lockkit/internal/faults"
)

// A Flaw is a defect of a server. Severity and code are those of core's findings.
type Flaw struct {
	Severity, Code string
	What           string // follows the name of the node in a message
	Fix            string // how to fix it
}

// Severities and codes of flaws.
const (
	severe = "fault"
	mild   = "warning"

	codeUnreachable = "unreachable"
	codeRefused     = "refused"
	codeRights      = "rights"
	codeNoNode      = "no_node"
	codeReplica     = "replica"
	codeEvicting    = "evicting"
	codeTooOld      = "too_old"
)

// A serverInfo holds the fields of a server's INFO; nil if there was none.
type serverInfo map[string]string

// ParseInfo parses the text of INFO.
func ParseInfo(text string) serverInfo {
	fields := serverInfo{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = faults.Clip(value) // messages quote it
		}
	}
	return fields
}

// flaws returns the reasons why a server with this INFO cannot be a node. asCluster tells that the client treats
// the server as part of a Redis Cluster.
func (info serverInfo) flaws(guarded, asCluster bool) (found []Flaw) {
	addIf := func(cond bool, code string, what, fix string) {
		if cond {
			found = append(found, Flaw{severe, code, what, fix})
		}
	}

	addIf(info.mode() == "sentinel", codeNoNode, "is a Sentinel, not a server of data",
		"pass redis.NewFailoverClient, or a URL of redis-sentinel://, which asks it for the master")
	// All keys may be on this server now, and elsewhere after a failover or a resharding.
	addIf(info.mode() == "cluster" && !asCluster, codeNoNode, "belongs to a Redis Cluster",
		"pass one redis.ClusterClient, or one URL of redis-cluster://, for all of the Cluster")
	if info == nil || found != nil {
		return found
	}

	addIf(info.isReplica(), codeReplica, fmt.Sprintf("is a %s of another server", info["role"]),
		"a node must be a master of its own")
	policy := info["maxmemory_policy"]
	addIf(policy != "" && policy != "noeviction" && info["maxmemory"] != "0", codeEvicting,
		fmt.Sprintf("maxmemory-policy is %s, under which Redis may evict a held lock", policy), "set it to noeviction")
	addIf(guarded && info["master_replid"] == "", codeNoNode,
		"INFO has no master_replid, which the restart guard needs",
		"turn the guard off knowing what it protects from")
	version := info["redis_version"]
	addIf(isTooOld(version), codeTooOld,
		fmt.Sprintf("is Redis %s, which does not apply min-replicas-to-write to scripts", version),
		"it must be 6.2.7 or newer")
	return found
}

// mode returns the kind of the server, which Valkey names in a field of its own.
func (info serverInfo) mode() string { return cmp.Or(info["redis_mode"], info["server_mode"]) }

// isOtherKind reports whether the server is a Sentinel, or part of a Redis Cluster that the client does not treat
// as one.
func (info serverInfo) isOtherKind(asCluster bool) bool {
	mode := info.mode()
	return mode == "sentinel" || mode == "cluster" && !asCluster
}

func (info serverInfo) isReplica() bool {
	role := info["role"]
	return role != "" && role != "master"
}

// isTooOld reports whether a version is older than 6.2.7, the first that applies min-replicas-to-write to scripts.
func isTooOld(version string) bool {
	var v [3]int
	_, err := fmt.Sscanf(version, "%d.%d.%d", &v[0], &v[1], &v[2])
	return err == nil && slices.Compare(v[:], []int{6, 2, 7}) < 0
}
