package queuelock

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/cronlock"
)

// Cron jobs and scheduled tasks reject an expression or a time zone with the same words.
func TestSchedulesAreRefusedAlike(t *testing.T) {
	service, err := cronlock.New(testLocker(t), "billing")
	if err != nil {
		t.Fatal(err)
	}
	cron := func(expression string, in *time.Location) string {
		_, err := service.Add("job", cronlock.Crontab(expression, in), func(context.Context) error { return nil })
		return reason(t, err, fmt.Sprintf("cronlock: job %q: crontab %q: ", "job", expression))
	}
	m, client := must(New(testLocker(t))), asynq.NewClientFromRedisClient(&dryRunRedis{})

	s := must(m.NewScheduler(client, "billing", time.UTC))
	defer s.Shutdown()
	for _, expression := range []string{
		"0 0 30 2 *", "0 0 0 31 4,6 *", ", * * * *", "", "* * *", "61 * * * *", "@fortnightly", "@every",
		"CRON_TZ= 0 3 * * *", "CRON_TZ=UTC", "CRON_TZ=Asia/Tokyo 0 3 * * *", "TZ=UTC * * * * *", " TZ= * * * * *",
	} {
		err := s.Register("entry", expression, asynq.NewTask("task", nil))
		task := reason(t, err, fmt.Sprintf("queuelock: entry %q: cronspec %q: ", "entry", expression))
		if job := cron(expression, time.UTC); job != task {
			t.Errorf("%q:\na job is refused by  %q,\na task is refused by %q", expression, job, task)
		}
	}
	for name, zone := range map[string]*time.Location{"nil": nil, "local": time.Local} {
		_, err := m.NewScheduler(client, "billing", zone)
		task := reason(t, err, "queuelock: scheduler: ")
		if job := cron("0 3 * * *", zone); job != task {
			t.Errorf("%s:\na job is refused by  %q,\na task is refused by %q", name, job, task)
		}
	}
}

// reason returns the text of an error after its beginning, about.
func reason(t *testing.T, err error, about string) string {
	t.Helper()
	if err == nil {
		t.Errorf("no error that begins with %q", about)
		return ""
	}
	why, found := strings.CutPrefix(err.Error(), about)
	if !found || why == "" {
		t.Errorf("%q does not begin with %q", err, about)
	}
	return why
}
