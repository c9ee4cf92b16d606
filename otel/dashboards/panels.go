package main

// A section is a row of the dashboard.
type section struct {
	title  string
	charts []chart
}

// A chart is a panel.
type chart struct {
	kind        string // Grafana's panel type; empty: timeseries
	title       string
	description string
	unit        string // Grafana's name of the unit
	redWhen     string // stat only: "above 0" or "below 1"
	queries     []query
}

type query struct {
	expr   string // in PromQL
	legend string
}

// sections are the rows of the dashboard, from top to bottom.
var sections = []section{
	{title: "Now", charts: []chart{
		{
			kind:        "stat",
			title:       "Held",
			description: "Locks held by these processes.",
			queries: []query{
				{
					expr: `sum(lockkit_leases{` + locks + `})`,
				},
			},
		},
		{
			kind:        "stat",
			title:       "Waiting",
			description: "Callers that are waiting for a lock, or asking for one.",
			queries: []query{
				{
					expr: `sum(lockkit_waiters{` + locks + `})`,
				},
			},
		},
		{
			kind:        "stat",
			title:       "Wait, p95",
			unit:        "s",
			description: "Over the time range.",
			queries: []query{
				{
					expr: quantile + `0.95, sum by (le) (rate(lockkit_acquire_duration_seconds_bucket{` + locks +
						`}[$__range])))`,
				},
			},
		},
		{
			kind:    "stat",
			title:   "Lost",
			redWhen: "above 0",
			description: "Locks that ended before their holder was done, over the time range. Shutdowns " +
				"included.",
			queries: []query{
				{
					expr: `sum` + increaseWithBirth(`lockkit_losses_total{`+locks+`}`, `$__range`),
				},
			},
		},
		{
			kind:    "stat",
			title:   "Without quorum",
			unit:    "percentunit",
			redWhen: "above 0",
			description: "Share of acquisitions that failed because too few nodes answered, over the time " +
				"range.",
			queries: []query{
				{
					expr: `sum(rate(lockkit_acquire_duration_seconds_count{` + locks +
						`,lockkit_outcome="unavailable"}[$__range])) / sum(rate(lockkit_acquire_duration_seconds_count{` +
						locks + `}[$__range]))`,
				},
			},
		},
		{
			kind:    "stat",
			title:   "Nodes to spare",
			redWhen: "below 1",
			description: "How many more nodes may fail before there is no quorum, as the process sees it " +
				"that is worst off. 0 is normal with one node only.",
			queries: []query{
				{
					expr: `min(` + nodesToSpare + `)`,
				},
			},
		},
	}},

	{title: "Waiting", charts: []chart{
		{
			kind:        "heatmap",
			title:       "Wait",
			unit:        "s",
			description: "From asking for a lock to having it, or not. Exemplars lead to traces.",
			queries: []query{
				{
					expr: `sum by (le) (increase(lockkit_acquire_duration_seconds_bucket{` + locks +
						`}[$__rate_interval]))`,
					legend: "{{le}}",
				},
			},
		},
		{
			title:       "Wait, p95",
			unit:        "s",
			description: "By name. A line at the top bucket means: longer than that.",
			queries: []query{
				{
					expr:   quantileBy("0.95", "lockkit_name", "lockkit_acquire_duration_seconds", locks),
					legend: "{{lockkit_name}}",
				},
			},
		},
		{
			title: "Waiting",
			description: "Callers that are waiting, by name. One that never comes back to 0 is a lock that " +
				"is asked for faster than it is given back.",
			queries: []query{
				{
					expr:   `sum by (lockkit_name) (lockkit_waiters{` + locks + `})`,
					legend: "{{lockkit_name}}",
				},
			},
		},
		{
			title:       "Acquisitions by outcome",
			unit:        "ops",
			description: "held and timeout are contention; unavailable is trouble with the nodes.",
			queries: []query{
				{
					expr:   `sum by (lockkit_outcome) (` + rate("lockkit_acquire_duration_seconds_count", locks) + `)`,
					legend: "{{lockkit_outcome}}",
				},
			},
		},
		{
			title:       "Contended",
			unit:        "percentunit",
			description: "Share of acquisitions that found the key held.",
			queries: []query{
				{
					expr: `sum by (lockkit_name) (` +
						rate("lockkit_acquire_duration_seconds_count", locks+`,lockkit_contended="true"`) +
						`) / sum by (lockkit_name) (` + rate("lockkit_acquire_duration_seconds_count", locks) +
						`)`,
					legend: "{{lockkit_name}}",
				},
			},
		},
	}},

	{title: "Holding", charts: []chart{
		{
			title:       "Held",
			description: "By name.",
			queries: []query{
				{
					expr:   `sum by (lockkit_name) (lockkit_leases{` + locks + `})`,
					legend: "{{lockkit_name}}",
				},
			},
		},
		{
			title: "Oldest hold",
			unit:  "s",
			description: "How long the lock of a name has been held that has been held longest. One that " +
				"climbs without end is stuck, or work that long.",
			queries: []query{
				{
					expr:   `max by (lockkit_name) (lockkit_hold_age_seconds{` + locks + `})`,
					legend: "{{lockkit_name}}",
				},
			},
		},
		{
			title:       "Hold, p95",
			unit:        "s",
			description: "How long locks were held, counted when they end.",
			queries: []query{
				{
					expr:   quantileBy("0.95", "lockkit_name", "lockkit_hold_duration_seconds", locks),
					legend: "{{lockkit_name}}",
				},
			},
		},
		{
			title: "Saturation",
			description: "Locks busy on average, counted when holds end, and as seen by the scrapes (better" +
				" where holds are long). 1 for a name with a single key means: no time left.",
			queries: []query{
				{
					expr:   `sum by (lockkit_name) (` + rate("lockkit_hold_duration_seconds_sum", locks) + `)`,
					legend: "{{lockkit_name}}",
				},
				{
					expr:   `sum by (lockkit_name) (avg_over_time(lockkit_leases{` + locks + `}[$__rate_interval]))`,
					legend: "{{lockkit_name}}, scraped",
				},
			},
		},
		{
			title: "Ends of locks",
			unit:  "ops",
			description: "released is how it should be; abandoned: the caller's context ended and nobody " +
				"released.",
			queries: []query{
				{
					expr: `sum by (lockkit_outcome, error_type) (` +
						rate("lockkit_hold_duration_seconds_count", locks) + `)`,
					legend: "{{lockkit_outcome}} {{error_type}}",
				},
			},
		},
	}},

	{title: "Losses and renewals", charts: []chart{
		{
			title: "Lost",
			description: "expired: no quorum confirmed in time. taken: nodes forgot it. clock: the process " +
				"stood still. max_hold: stuck holder. revoked: an operator ended it. closed: " +
				"shutdown did not wait.",
			queries: []query{
				{
					expr: `sum by (lockkit_name, error_type) ` +
						increaseWithBirth(`lockkit_losses_total{`+locks+`}`, `$__rate_interval`),
					legend: "{{lockkit_name}} {{error_type}}",
				},
			},
		},
		{
			title: "Margin at renewal, p5",
			unit:  "s",
			description: "One in twenty renewals began with less trusted time than this. Near 0 the next " +
				"hiccup costs locks.",
			queries: []query{
				{
					expr:   quantileBy("0.05", "lockkit_name", "lockkit_renew_margin_seconds", locks),
					legend: "{{lockkit_name}}",
				},
			},
		},
		{
			title: "Renewal, p95",
			unit:  "s",
			queries: []query{
				{
					expr: quantileBy("0.95", "lockkit_name", "lockkit_operation_duration_seconds",
						locks+`,lockkit_operation="renew"`),
					legend: "{{lockkit_name}}",
				},
			},
		},
		{
			title:       "Renewals that failed",
			unit:        "ops",
			description: "A failed round is tried again; a lock is lost when none succeeds in time.",
			queries: []query{
				{
					expr:   `sum by (lockkit_name, error_type) (` + operations("renew", `,error_type!=""`) + `)`,
					legend: "{{lockkit_name}} {{error_type}}",
				},
			},
		},
		{
			title:       "Completions",
			unit:        "ops",
			description: "Records that work is done. unavailable and lost leave open whether it is done again.",
			queries: []query{
				{
					expr:   `sum by (lockkit_outcome, error_type) (` + operations("complete", "") + `)`,
					legend: "{{lockkit_outcome}} {{error_type}}",
				},
			},
		},
		{
			title:       "Releases",
			unit:        "ops",
			description: "unavailable: the key stays taken until its TTL is over.",
			queries: []query{
				{
					expr:   `sum by (lockkit_outcome) (` + operations("release", "") + `)`,
					legend: "{{lockkit_outcome}}",
				},
			},
		},
	}},

	{title: "Nodes", charts: []chart{
		{
			title:       "Nodes voting",
			description: "How many processes find that a node votes. Verdicts says why one does not.",
			queries: []query{
				{
					expr:   `sum by (lockkit_node_index, server_address) (` + nodeVoting + `)`,
					legend: "{{lockkit_node_index}} {{server_address}}",
				},
			},
		},
		{
			title:       "Nodes to spare",
			description: "By process.",
			queries: []query{
				{
					expr:   nodesToSpare,
					legend: "{{instance}}",
				},
			},
		},
		{
			title:       "Answers, p95",
			unit:        "s",
			description: "Also those that came after the others had decided.",
			queries: []query{
				{
					expr:   quantileBy("0.95", "lockkit_node_index", "lockkit_node_request_duration_seconds", processes),
					legend: "{{lockkit_node_index}}",
				},
			},
		},
		{
			title:       "Verdicts",
			unit:        "ops",
			description: "What nodes make of requests.",
			queries: []query{
				{
					expr: `sum by (lockkit_node_index, lockkit_verdict) (` +
						rate("lockkit_node_request_duration_seconds_count", processes) + `)`,
					legend: "{{lockkit_node_index}} {{lockkit_verdict}}",
				},
			},
		},
		{
			title: "Clock offset",
			unit:  "s",
			description: "Clock of the node minus that of the process, request delay included: the worst of" +
				" all processes. Outside of the clock window (500ms by default) a node does not " +
				"vote.",
			queries: []query{
				{
					expr:   `max by (lockkit_node_index) (lockkit_node_clock_offset_seconds{` + processes + `})`,
					legend: "{{lockkit_node_index}}, most ahead",
				},
				{
					expr:   `min by (lockkit_node_index) (lockkit_node_clock_offset_seconds{` + processes + `})`,
					legend: "{{lockkit_node_index}}, most behind",
				},
			},
		},
	}},

	{title: "Cron jobs", charts: []chart{
		{
			title: "Ticks run",
			description: "By job. A rerun, which is counted as a run too, is a later start of a tick under " +
				"AtLeastOnce.",
			queries: []query{
				{
					expr:   events("lockkit_name, lockkit_event", "cronlock", "tick_run|tick_rerun"),
					legend: "{{lockkit_name}} {{lockkit_event}}",
				},
			},
		},
		{
			title:       "Ticks left to others",
			description: "What every replica but one does with a tick.",
			queries: []query{
				{
					expr:   events("lockkit_event", "cronlock", "tick_held|tick_done|tick_not_leader"),
					legend: "{{lockkit_event}}",
				},
			},
		},
		{
			title:       "Ticks in trouble",
			description: "Missed, superseded by a later tick, without quorum, refused, lost, not recorded.",
			queries: []query{
				{
					expr: events(
						"lockkit_name, lockkit_event",
						"cronlock",
						"tick_missed|tick_superseded|tick_unavailable|tick_refused|run_lost|run_unrecorded",
					),
					legend: "{{lockkit_name}} {{lockkit_event}}",
				},
			},
		},
		{
			title:       "Leadership",
			description: "By group.",
			queries: []query{
				{
					expr: events(
						"lockkit_name, lockkit_event",
						"leader",
						"leader_elected|leader_lost|leader_resigned",
					),
					legend: "{{lockkit_name}} {{lockkit_event}}",
				},
			},
		},
	}},

	{title: "Queue", charts: []chart{
		{
			title:       "Duplicates suppressed",
			description: "Completed tasks that were delivered again, and not run. By task type.",
			queries: []query{
				{
					expr:   events("lockkit_name", "queuelock", "duplicate_suppressed"),
					legend: "{{lockkit_name}}",
				},
			},
		},
		{
			title: "Given back",
			description: "Tasks whose key was held (contended) or rests (cooldown), or whose locks were out" +
				" of reach: delivered again later.",
			queries: []query{
				{
					expr:   events("lockkit_name, lockkit_event", "queuelock", "contended|unavailable|cooldown"),
					legend: "{{lockkit_name}} {{lockkit_event}}",
				},
			},
		},
		{
			title: "Tasks in trouble",
			description: "Archived unrun, no key to be made, handlers that do not return, or return nil " +
				"after their context ended, stale fencing tokens, completions not recorded, refused or not remembered, " +
				"ticks of a Scheduler given up.",
			queries: []query{
				{
					expr: events(
						"lockkit_name, lockkit_event",
						"queuelock",
						"archived_unrun|lease_abandoned|completion_unrecorded|completion_refused|nil_after_cancel|"+
							"no_key|foreign_id|tick_missed|token_stale",
					),
					legend: "{{lockkit_name}} {{lockkit_event}}",
				},
			},
		},
	}},

	{title: "HTTP", charts: []chart{
		{
			title:       "Busy",
			description: "Requests that were told to come back, by route.",
			queries: []query{
				{
					expr: events(
						"lockkit_name, lockkit_event",
						"httplock",
						"busy|queue_full|overloaded|done|draining",
					),
					legend: "{{lockkit_name}} {{lockkit_event}}",
				},
			},
		},
		{
			title:       "Idempotent requests",
			description: "Answered from the record, or refused.",
			queries: []query{
				{
					expr:   events("lockkit_event", "httplock", "replayed|idempotency_.*"),
					legend: "{{lockkit_event}}",
				},
			},
		},
		{
			title:       "Requests in trouble",
			description: "Without quorum, lost on the way, not recorded; clients that went away while waiting.",
			queries: []query{
				{
					expr: events(
						"lockkit_event",
						"httplock",
						"unavailable|lost|record_open|misconfigured|client_gone|key_missing|body_.*|"+
							"answer_too_large",
					),
					legend: "{{lockkit_event}}",
				},
			},
		},
	}},
}
