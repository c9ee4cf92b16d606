package core

import (
	"sync"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/testutil"
)

// simRecords holds what the processes are told about completions against what is promised. A record is
// promised to stay while no more nodes forget it than guarantee 7 allows. The simulation sees all nodes, so it
// knows: a loss of memory that is not covered excuses whatever becomes of that key's record afterwards.
// Everything else, leases and tokens of that key too, goes on being checked.
type simRecords struct {
	mu      sync.Mutex
	excused map[string]bool
	told    map[simRecord]bool // whether its holder was told
}

// A simRecord is one completion; its result names the holder.
type simRecord struct {
	key, result string
	token       uint64
}

func (c *simRecords) completed(s *simulation, key, holder string, token uint64) {
	c.tell(s, simRecord{key, holder, token}, true)
}

// seen books what somebody was told who asked for the key. A result always comes with the token under which
// it was completed, whatever was lost.
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
			s.t.Errorf("%s: token %d completed with %q and with %q", rec.key, rec.token, rec.result, other.result)
		}
	}
	switch {
	case c.excused[rec.key]:
	case holder:
		s.history.Completed(rec.key, rec.result, rec.token, time.Now())
	default:
		s.history.SeenDone(rec.key, rec.token, time.Now())
	}
}

// settled counts records that others completed for a holder that was never told.
func (s *simulation) settled() {
	for _, told := range s.records.told {
		if !told {
			s.count("settled")
		}
	}
}

// forget has node i lose memory, and excuses what that may do to records.
func (s *simulation) forget(i int, lose func()) {
	synctest.Wait() // nothing else happens at this instant
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
			s.count("record excused")
		case before[j][i] != after[j][i]:
			s.count("record kept")
		}
	}
}

// excuse has nothing promised any more about the record of key.
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
	s.history.Forget(key, time.Now())
}

// covered reports whether what is promised about a key's record outlives a loss of memory: nobody has one, or
// it is decided, and enough of the nodes that have it keep it.
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

// recorded is the result that each node has, by job. While an old primary serves, it counts as well.
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
