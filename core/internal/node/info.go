package node

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/lockkit/lockkit/internal/faults"
)

// A Flaw is something that is wrong with a server. Severity and code are those of core's findings.
type Flaw struct {
	Severity, Code string
	What           string // to be read after the name of the node
	Mend           string // what to do
}

const (
	severe = "fault"
	mild   = "warning"

	unreachable = "unreachable"
	refused     = "refused"
	rights      = "rights"
	noNode      = "no_node"
	isReplica   = "replica"
	evicting    = "evicting"
	oldServer   = "too_old"
)

// A serverInfo is what a server says of itself; nil = nothing.
type serverInfo map[string]string

// ParseInfo reads the fields of INFO.
func ParseInfo(text string) serverInfo {
	fields := serverInfo{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = faults.Clip(value) // messages quote it
		}
	}
	return fields
}

// unfit says why a server that told this of itself cannot be a node. asCluster: the client treats it as a Redis Cluster's.
func (info serverInfo) unfit(guarded, asCluster bool) (faults []Flaw) {
	bad := func(is bool, code string, what, mend string) {
		if is {
			faults = append(faults, Flaw{severe, code, what, mend})
		}
	}
	bad(info.mode() == "sentinel", noNode, "is a Sentinel, not a server of data",
		"pass redis.NewFailoverClient, or a URL of redis-sentinel://, which asks it for the master")
	// Its keys may all be on this server now, and elsewhere after a failover or a resharding.
	bad(info.mode() == "cluster" && !asCluster, noNode, "belongs to a Redis Cluster",
		"pass one redis.ClusterClient, or one URL of redis-cluster://, for all of the Cluster")
	if info == nil || faults != nil {
		return faults
	}
	bad(info.isReplica(), isReplica, fmt.Sprintf("is a %s of another server", info["role"]),
		"a node must be a master of its own")
	policy := info["maxmemory_policy"]
	bad(policy != "" && policy != "noeviction" && info["maxmemory"] != "0", evicting,
		fmt.Sprintf("maxmemory-policy is %s, under which Redis may evict a held lock", policy), "set it to noeviction")
	bad(guarded && info["master_replid"] == "", noNode, "INFO has no master_replid, which the restart guard needs",
		"turn the guard off knowing what it protects from")
	version := info["redis_version"]
	bad(tooOld(version), oldServer, fmt.Sprintf("is Redis %s, which does not apply min-replicas-to-write to scripts", version),
		"it must be 6.2.7 or newer")
	return faults
}

// mode is what kind of a server it is; Valkey calls it otherwise.
func (info serverInfo) mode() string { return cmp.Or(info["redis_mode"], info["server_mode"]) }

func (info serverInfo) isOtherKind(asCluster bool) bool {
	mode := info.mode()
	return mode == "sentinel" || mode == "cluster" && !asCluster
}

func (info serverInfo) isReplica() bool {
	role := info["role"]
	return role != "" && role != "master"
}

// tooOld reports whether a version is older than 6.2.7, the first that applies min-replicas-to-write to scripts.
func tooOld(version string) bool {
	var v [3]int
	_, err := fmt.Sscanf(version, "%d.%d.%d", &v[0], &v[1], &v[2])
	return err == nil && slices.Compare(v[:], []int{6, 2, 7}) < 0
}
