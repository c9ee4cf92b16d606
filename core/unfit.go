package core

import (
	"fmt"
	"strconv"
	"strings"
)

// An identity is what a server says of itself.
type identity struct {
	told                                          bool // it says anything
	runID, mode, role, policy, maxMemory, version string
	historic                                      bool // reports its replication history
}

// identityOf reads what a server says of itself.
func identityOf(info map[string]string) identity {
	id := identity{told: true, runID: info["run_id"], mode: info["redis_mode"], role: info["role"],
		policy: info["maxmemory_policy"], maxMemory: info["maxmemory"], version: info["redis_version"]}
	if id.mode == "" {
		id.mode = info["server_mode"] // Valkey
	}
	_, id.historic = info["master_replid"]
	return id
}

// parseInfo reads the fields of INFO.
func parseInfo(text string) map[string]string {
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields
}

// unfit says why a server that told this of itself cannot be a node. asCluster: the client treats it as a Redis Cluster's.
func (id identity) unfit(guarded, asCluster bool) (faults []Finding) {
	if !id.told {
		return nil
	}
	if id.mode == "sentinel" {
		return []Finding{{SeverityFault, CodeNoNode, "is a Sentinel, not a server of data", "pass redis.NewFailoverClient, or a URL of redis-sentinel://, which asks it for the master"}}
	}
	if id.mode == "cluster" && !asCluster {
		// Its keys may all be on this server now, and elsewhere after a failover or a resharding.
		return []Finding{{SeverityFault, CodeNoNode, "belongs to a Redis Cluster", "pass one redis.ClusterClient, or one URL of redis-cluster://, for all of the Cluster"}}
	}
	bad := func(is bool, code FindingCode, what, mend string) {
		if is {
			faults = append(faults, Finding{SeverityFault, code, what, mend})
		}
	}
	bad(id.role != "" && id.role != "master", CodeReplica, fmt.Sprintf("is a %s of another server", id.role),
		"a node must be a master of its own")
	bad(id.policy != "" && id.policy != "noeviction" && id.maxMemory != "0", CodeEvicting,
		fmt.Sprintf("maxmemory-policy is %s, under which Redis may evict a held lock", id.policy), "set it to noeviction")
	bad(guarded && !id.historic, CodeNoNode, "INFO has no master_replid, which the restart guard needs",
		"turn the guard off knowing what it protects from")
	old, _ := olderThan(id.version, oldest)
	bad(old, CodeTooOld, fmt.Sprintf("is Redis %s, whose scripts do not heed min-replicas-to-write", id.version),
		fmt.Sprintf("it must be %d.%d.%d or newer", oldest[0], oldest[1], oldest[2]))
	return faults
}

// oldest is the first version that applies min-replicas-to-write to scripts.
var oldest = [3]int{6, 2, 7}

// olderThan reports whether a version is older than min; known is false if it is not a version.
func olderThan(version string, min [3]int) (older, known bool) {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 3 {
		return false, false
	}
	for i, part := range parts {
		n, err := strconv.Atoi(part)
		switch {
		case err != nil:
			return false, false
		case n != min[i]:
			return n < min[i], true
		}
	}
	return false, true
}
