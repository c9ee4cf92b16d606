package main

// What the dashboard shows. A row of the dashboard is a section here; a panel is a title, what to read from it,
// and its queries.

type section struct {
	title  string
	panels []chart
}

type chart struct {
	kind    string // Grafana's panel type; empty = timeseries
	title   string
	help    string
	unit    string // Grafana's name of it
	bad     string // stat: "above 0" or "below 1" turns it red
	queries []query
}

type query struct{ expr, legend string }

// J and L filter by the dashboard's variables: what belongs to processes, and what belongs to locks.
const (
	j = `job=~"$job"`
	l = `job=~"$job",lockkit_name=~"$name"`

	quantile = `histogram_quantile(`
	voting   = `lockkit_node_voting{` + j + `}`
	margin   = `min by (job, instance) (lockkit_nodes_spare{` + j + `})`
)

func rate(metric, filter string) string {
	return `rate(` + metric + `{` + filter + `}[$__rate_interval])`
}

// counted is how much a counter of rare events grew. Its first event gives birth to it, of which increase() sees
// nothing. Looking back for an hour, and for its process, keeps a gap in the scrapes from being taken for a birth.
func counted(selector, window string) string {
	before := ` offset ` + window
	return `((` + selector + ` unless ` + selector + before +
		` unless (last_over_time(` + selector + `[1h]` + before + `) unless on (job, instance) lockkit_node_voting{` + j + `}` + before + `))` +
		` or increase(` + selector + `[` + window + `]))`
}

func events(by, source, kinds string) string {
	return `sum by (` + by + `) ` + counted(`lockkit_events_total{`+l+`,lockkit_source="`+source+`",lockkit_event=~"`+kinds+`"}`, `$__rate_interval`)
}

func operations(operation, filter string) string {
	return rate("lockkit_operation_duration_seconds_count", l+`,lockkit_operation="`+operation+`"`+filter)
}

// quantileBy is a quantile of a histogram by some labels.
func quantileBy(q, by, metric, filter string) string {
	return quantile + q + `, sum by (le, ` + by + `) (` + rate(metric+"_bucket", filter) + `))`
}

var sections = []section{
	{"Now", []chart{
		{kind: "stat", title: "Held", help: "Locks held by these processes.", queries: []query{{`sum(lockkit_leases{` + l + `})`, ""}}},
		{kind: "stat", title: "Waiting", help: "Callers that are waiting for a lock, or asking for one.", queries: []query{{`sum(lockkit_waiters{` + l + `})`, ""}}},
		{kind: "stat", title: "Wait, p95", unit: "s", help: "Over the time range.",
			queries: []query{{quantile + `0.95, sum by (le) (rate(lockkit_acquire_duration_seconds_bucket{` + l + `}[$__range])))`, ""}}},
		{kind: "stat", title: "Lost", bad: "above 0", help: "Locks that ended before their holder was done, over the time range. Shutdowns included.",
			queries: []query{{`sum` + counted(`lockkit_losses_total{`+l+`}`, `$__range`), ""}}},
		{kind: "stat", title: "Without quorum", unit: "percentunit", bad: "above 0", help: "Share of acquisitions that failed because too few nodes answered, over the time range.",
			queries: []query{{`sum(rate(lockkit_acquire_duration_seconds_count{` + l + `,lockkit_outcome="unavailable"}[$__range])) / sum(rate(lockkit_acquire_duration_seconds_count{` + l + `}[$__range]))`, ""}}},
		{kind: "stat", title: "Nodes to spare", bad: "below 1", help: "How many more nodes may fail before there is no quorum, as the process sees it that is worst off. 0 is normal with one node only.",
			queries: []query{{`min(` + margin + `)`, ""}}},
	}},
	{"Waiting", []chart{
		{kind: "heatmap", title: "Wait", unit: "s", help: "From asking for a lock to having it, or not. Exemplars lead to traces.",
			queries: []query{{`sum by (le) (increase(lockkit_acquire_duration_seconds_bucket{` + l + `}[$__rate_interval]))`, "{{le}}"}}},
		{title: "Wait, p95", unit: "s", help: "By name. A line at the top bucket means: longer than that.",
			queries: []query{{quantileBy("0.95", "lockkit_name", "lockkit_acquire_duration_seconds", l), "{{lockkit_name}}"}}},
		{title: "Waiting", help: "Callers that are waiting, by name. One that never comes back to 0 is a lock that is asked for faster than it is given back.",
			queries: []query{{`sum by (lockkit_name) (lockkit_waiters{` + l + `})`, "{{lockkit_name}}"}}},
		{title: "Acquisitions by outcome", unit: "ops", help: "held and timeout are contention; unavailable is trouble with the nodes.",
			queries: []query{{`sum by (lockkit_outcome) (` + rate("lockkit_acquire_duration_seconds_count", l) + `)`, "{{lockkit_outcome}}"}}},
		{title: "Contended", unit: "percentunit", help: "Share of acquisitions that found the key held.",
			queries: []query{{`sum by (lockkit_name) (` + rate("lockkit_acquire_duration_seconds_count", l+`,lockkit_contended="true"`) + `) / sum by (lockkit_name) (` + rate("lockkit_acquire_duration_seconds_count", l) + `)`, "{{lockkit_name}}"}}},
	}},
	{"Holding", []chart{
		{title: "Held", help: "By name.", queries: []query{{`sum by (lockkit_name) (lockkit_leases{` + l + `})`, "{{lockkit_name}}"}}},
		{title: "Oldest hold", unit: "s", help: "How long the lock of a name has been held that has been held longest. One that climbs without end is stuck, or work that long.",
			queries: []query{{`max by (lockkit_name) (lockkit_hold_age_seconds{` + l + `})`, "{{lockkit_name}}"}}},
		{title: "Hold, p95", unit: "s", help: "How long locks were held, counted when they end.",
			queries: []query{{quantileBy("0.95", "lockkit_name", "lockkit_hold_duration_seconds", l), "{{lockkit_name}}"}}},
		{title: "Saturation", help: "Locks busy on average, counted when holds end, and as seen by the scrapes (better where holds are long). 1 for a name with a single key means: no time left.",
			queries: []query{{`sum by (lockkit_name) (` + rate("lockkit_hold_duration_seconds_sum", l) + `)`, "{{lockkit_name}}"},
				{`sum by (lockkit_name) (avg_over_time(lockkit_leases{` + l + `}[$__rate_interval]))`, "{{lockkit_name}}, scraped"}}},
		{title: "Ends of locks", unit: "ops", help: "released is how it should be; abandoned: the caller's context ended and nobody released.",
			queries: []query{{`sum by (lockkit_outcome, error_type) (` + rate("lockkit_hold_duration_seconds_count", l) + `)`, "{{lockkit_outcome}} {{error_type}}"}}},
	}},
	{"Losses and renewals", []chart{
		{title: "Lost", help: "expired: no quorum confirmed in time. taken: nodes forgot it. clock: the process stood still. max_hold: stuck holder. revoked: an operator ended it. closed: shutdown did not wait.",
			queries: []query{{`sum by (lockkit_name, error_type) ` + counted(`lockkit_losses_total{`+l+`}`, `$__rate_interval`), "{{lockkit_name}} {{error_type}}"}}},
		{title: "Margin at renewal, p5", unit: "s", help: "One in twenty renewals began with less trusted time than this. Near 0 the next hiccup costs locks.",
			queries: []query{{quantileBy("0.05", "lockkit_name", "lockkit_renew_margin_seconds", l), "{{lockkit_name}}"}}},
		{title: "Renewal, p95", unit: "s", queries: []query{{quantileBy("0.95", "lockkit_name", "lockkit_operation_duration_seconds", l+`,lockkit_operation="renew"`), "{{lockkit_name}}"}}},
		{title: "Renewals that failed", unit: "ops", help: "A failed round is tried again; a lock is lost when none succeeds in time.",
			queries: []query{{`sum by (lockkit_name, error_type) (` + operations("renew", `,error_type!=""`) + `)`, "{{lockkit_name}} {{error_type}}"}}},
		{title: "Completions", unit: "ops", help: "Records that work is done. unavailable and lost leave open whether it is done again.",
			queries: []query{{`sum by (lockkit_outcome, error_type) (` + operations("complete", "") + `)`, "{{lockkit_outcome}} {{error_type}}"}}},
		{title: "Releases", unit: "ops", help: "unavailable: the key stays taken until its TTL is over.",
			queries: []query{{`sum by (lockkit_outcome) (` + operations("release", "") + `)`, "{{lockkit_outcome}}"}}},
	}},
	{"Nodes", []chart{
		{title: "Nodes voting", help: "How many processes find that a node votes. Verdicts says why one does not.",
			queries: []query{{`sum by (lockkit_node_index, server_address) (` + voting + `)`, "{{lockkit_node_index}} {{server_address}}"}}},
		{title: "Nodes to spare", help: "By process.", queries: []query{{margin, "{{instance}}"}}},
		{title: "Answers, p95", unit: "s", help: "Also those that came after the others had decided.",
			queries: []query{{quantileBy("0.95", "lockkit_node_index", "lockkit_node_request_duration_seconds", j), "{{lockkit_node_index}}"}}},
		{title: "Verdicts", unit: "ops", help: "What nodes make of requests.",
			queries: []query{{`sum by (lockkit_node_index, lockkit_verdict) (` + rate("lockkit_node_request_duration_seconds_count", j) + `)`, "{{lockkit_node_index}} {{lockkit_verdict}}"}}},
		{title: "Clock offset", unit: "s", help: "Clock of the node minus that of the process, request delay included: the worst of all processes. Outside of the clock window (500ms by default) a node does not vote.",
			queries: []query{{`max by (lockkit_node_index) (lockkit_node_clock_offset_seconds{` + j + `})`, "{{lockkit_node_index}}, most ahead"},
				{`min by (lockkit_node_index) (lockkit_node_clock_offset_seconds{` + j + `})`, "{{lockkit_node_index}}, most behind"}}},
	}},
	{"Cron jobs", []chart{
		{title: "Ticks run", help: "By job. A rerun, which is counted as a run too, is a later start of a tick under AtLeastOnce.",
			queries: []query{{events("lockkit_name, lockkit_event", "cronlock", "tick_run|tick_rerun"), "{{lockkit_name}} {{lockkit_event}}"}}},
		{title: "Ticks left to others", help: "What every replica but one does with a tick.",
			queries: []query{{events("lockkit_event", "cronlock", "tick_held|tick_done|tick_not_leader"), "{{lockkit_event}}"}}},
		{title: "Ticks in trouble", help: "Missed, superseded by a later tick, without quorum, refused, lost, not recorded.",
			queries: []query{{events("lockkit_name, lockkit_event", "cronlock", "tick_missed|tick_superseded|tick_unavailable|tick_refused|run_lost|run_unrecorded"), "{{lockkit_name}} {{lockkit_event}}"}}},
		{title: "Leadership", help: "By group.",
			queries: []query{{events("lockkit_name, lockkit_event", "cronlock", "leader_elected|leader_lost|leader_resigned"), "{{lockkit_name}} {{lockkit_event}}"}}},
	}},
	{"Queue", []chart{
		{title: "Duplicates suppressed", help: "Completed tasks that were delivered again, and not run. By task type.",
			queries: []query{{events("lockkit_name", "queuelock", "duplicate_suppressed"), "{{lockkit_name}}"}}},
		{title: "Given back", help: "Tasks whose key was held (contended) or rests (cooldown), or whose locks were out of reach: delivered again later.",
			queries: []query{{events("lockkit_name, lockkit_event", "queuelock", "contended|unavailable|cooldown"), "{{lockkit_name}} {{lockkit_event}}"}}},
		{title: "Tasks in trouble", help: "Archived unrun, no key to be made, handlers that do not return, or return nil after their context ended, completions not recorded, refused or not remembered, ticks of a Scheduler given up.",
			queries: []query{{events("lockkit_name, lockkit_event", "queuelock", "archived_unrun|lease_abandoned|completion_unrecorded|completion_refused|nil_after_cancel|no_key|foreign_id|tick_missed"), "{{lockkit_name}} {{lockkit_event}}"}}},
	}},
	{"HTTP", []chart{
		{title: "Busy", help: "Requests that were told to come back, by route.",
			queries: []query{{events("lockkit_name, lockkit_event", "httplock", "busy|queue_full|overloaded|done|draining"), "{{lockkit_name}} {{lockkit_event}}"}}},
		{title: "Idempotent requests", help: "Answered from the record, or refused.",
			queries: []query{{events("lockkit_event", "httplock", "replayed|idempotency_.*"), "{{lockkit_event}}"}}},
		{title: "Requests in trouble", help: "Without quorum, lost on the way, not recorded; clients that went away while waiting.",
			queries: []query{{events("lockkit_event", "httplock", "unavailable|lost|record_open|misconfigured|client_gone|key_missing|body_.*|answer_too_large"), "{{lockkit_event}}"}}},
	}},
}
