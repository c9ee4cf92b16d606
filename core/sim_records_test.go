package core

import (
	"sync"
	"testing/synctest"

	"github.com/lockkit/lockkit/testutil"
)

// simRecords checks the results of completions against the promise: a record stays as long as no more nodes forget it
// than guarantee 7 allows. The simulation sees all nodes. If a loss of memory is not covered by the guarantee, the
// record of the key is excused from then on. The leases and tokens of the key are still checked.
type simRecords struct {
	mu      sync.Mutex
	excused map[string]bool
	told    map[simRecord]bool // whether the holder got a confirmation
}

// A simRecord is one completion; its result names the holder.
type simRecord struct {
	key, result string
	token       uint64
}

func (c *simRecords) completed(s *simulation, key, holder string, token uint64) {
	c.tell(s, simRecord{key, holder, token}, true)
}

// seen records the answer to an acquisition of a completed key. A result always comes with the token under which the
// key was completed, whatever the nodes have lost.
func (c *simRecords) seen(s *simulation, key string, rec *Record) {
	c.tell(s, simRecord{key, string(rec.Result), rec.Token}, false)
}

func (c *simRecords) tell(s *simulation, rec simRecord, holder bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.told == nil {
		c.told = map[simRecord]bool{}
	}
	c.told[rec] = c.told[rec] || holder
	for other := range c.told {
		if other.key == rec.key && other.token == rec.token && other.result != rec.result {
			s.Violation("%s: token %d completed with %q and with %q", rec.key, rec.token, rec.result, other.result)
		}
	}
	switch {
	case c.excused[rec.key]:
	case holder:
		s.history.completed(rec.key, rec.result, rec.token)
	default:
		s.history.seenDone(rec.key, rec.token)
	}
}

// settled counts the records that other clients completed: their holders never got a confirmation.
func (s *simulation) settled() {
	for _, told := range s.records.told {
		if !told {
			s.Count("settled")
		}
	}
}

// forget makes node i lose memory, and excuses the records that may be lost with it.
func (s *simulation) forget(i int, lose func()) {
	synctest.Wait() // the comparison below must not see any other change
	s.operators.forgot.Add(1)
	before := s.recorded()
	lose()
	after := s.recorded()

	c := &s.records
	c.mu.Lock()
	defer c.mu.Unlock()
	for j := range simJobs {
		key := jobKey(j)
		switch {
		case c.excused[key]:
		case !covered(before[j], after[j]):
			c.excuseLocked(s, key)
			s.Count("record excused")
		case before[j][i] != after[j][i]:
			s.Count("record kept")
		}
	}
}

// excuse excuses the record of key: its loss is no error from now on.
func (c *simRecords) excuse(s *simulation, key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.excuseLocked(s, key)
}

func (c *simRecords) excuseLocked(s *simulation, key string) {
	if c.excused == nil {
		c.excused = map[string]bool{}
	}
	c.excused[key] = true
	s.history.forget(key)
}

// covered reports whether the promise about a key's record holds despite a loss of memory. It does if no node has a
// record. It also does if a quorum had the same record, no node had another one, and enough of these nodes keep it.
func covered(before, after []string) bool {
	value, had, keep := "", 0, 0
	for i, v := range before {
		if v == "" {
			continue
		}
		if value != "" && v != value {
			return false
		}
		value = v
		had++
		if after[i] == v {
			keep++
		}
	}

	n := len(before)
	q := n/2 + 1
	return had == 0 || had >= q && keep >= n-q+1
}

// recorded returns the result that each node has, by job. If an old primary of the node still serves, its results count
// unless the new one has a result.
func (s *simulation) recorded() [simJobs][]string {
	var all [simJobs][]string
	for j := range simJobs {
		name := s.processes[0].e.Keys.Resource(jobKey(j))
		for i, n := range s.world.nodes {
			result := ""
			for _, n := range append(s.nemesis.former[i], n) {
				if v, _ := n.Exec("GET", name); v != nil {
					if r := must(testutil.ParseResource(v.(string))); r.Record != nil {
						result = r.Record.Result
					}
				}
			}
			all[j] = append(all[j], result)
		}
	}
	return all
}
