package main

// Parts of queries. processes and locks filter by the dashboard's variables: processes for metrics without a name,
// locks for metrics with a name.
const (
	processes = `job=~"$job"`
	locks     = `job=~"$job",lockkit_name=~"$name"`

	quantile     = `histogram_quantile(`
	nodeVoting   = `lockkit_node_voting{` + processes + `}`
	nodesToSpare = `min by (job, instance) (lockkit_nodes_spare{` + processes + `})`
)

// rate returns a query for the rate of a counter.
func rate(metric, filter string) string {
	return `rate(` + metric + `{` + filter + `}[$__rate_interval])`
}

// increaseWithBirth returns a query for the growth of a counter of rare events. To increase() it adds the value of each
// new series, because increase() does not see the event with which a series begins. A series is new if it had no value
// when the window began. It is not new if it had a value in the hour before, and its process was not scraped when the
// window began: then the scrapes have a gap.
func increaseWithBirth(selector, window string) string {
	ago := ` offset ` + window

	hadValue := selector + ago
	hadValueInHour := `last_over_time(` + selector + `[1h]` + ago + `)`
	unlessScraped := `unless on (job, instance) ` + nodeVoting + ago

	newSeries := `(` + selector + ` unless ` + hadValue + ` unless (` + hadValueInHour + ` ` + unlessScraped + `))`
	return `(` + newSeries + ` or increase(` + selector + `[` + window + `]))`
}

// events returns a query for the number of events of a package, by labels. kinds is a regular expression.
func events(by, source, kinds string) string {
	selector := `lockkit_events_total{` + locks + `,lockkit_source="` + source + `",lockkit_event=~"` + kinds + `"}`
	return `sum by (` + by + `) ` + increaseWithBirth(selector, `$__rate_interval`)
}

// operations returns a query for the rate of an operation: renew, complete or release.
func operations(operation, filter string) string {
	return rate("lockkit_operation_duration_seconds_count", locks+`,lockkit_operation="`+operation+`"`+filter)
}

// quantileBy returns a query for a quantile of a histogram by labels.
func quantileBy(q, by, metric, filter string) string {
	return quantile + q + `, sum by (le, ` + by + `) (` + rate(metric+"_bucket", filter) + `))`
}
