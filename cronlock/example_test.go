package cronlock_test

import (
	"context"
	"fmt"
	"time"

	"github.com/lockkit/lockkit/cronlock"
)

// The function of a job gets its tick from its context. With NewContext, a unit test of the function needs no nodes.
func ExampleNewContext() {
	invoices := func(ctx context.Context) error {
		run, _ := cronlock.FromContext(ctx)
		fmt.Println("invoices of", run.Tick.AddDate(0, 0, -1).Format(time.DateOnly))
		return nil
	}
	ctx := cronlock.NewContext(context.Background(), cronlock.Run{Tick: time.Date(2030, 5, 1, 3, 0, 0, 0, time.UTC)})
	_ = invoices(ctx)
	// Output: invoices of 2030-04-30
}

// Every has the same instants on all replicas. It does not count from the start of a process.
func ExampleEvery() {
	quarter := cronlock.Every(15 * time.Minute)
	at := time.Date(2030, 5, 1, 3, 7, 30, 0, time.UTC)
	for range 3 {
		at = quarter.Next(at)
		fmt.Println(at.Format(time.TimeOnly))
	}
	// Output:
	// 03:15:00
	// 03:30:00
	// 03:45:00
}

// At is a schedule of given instants. After the last one, the job has no more ticks.
func ExampleAt() {
	noon := time.Date(2030, 5, 1, 12, 0, 0, 0, time.UTC)
	once := cronlock.At(noon)
	fmt.Println(once.Next(noon.Add(-time.Hour)).Format(time.TimeOnly), once.Next(noon).IsZero())
	// Output: 12:00:00 true
}

func ExampleCrontab() {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		panic(err)
	}
	night := cronlock.Crontab("30 2 * * *", berlin) // on 2030-03-31 there is no 02:30
	at := time.Date(2030, 3, 30, 0, 0, 0, 0, time.UTC)
	for range 3 {
		at = night.Next(at)
		fmt.Println(at.In(berlin).Format("01-02 15:04"))
	}
	// Output:
	// 03-30 02:30
	// 04-01 02:30
	// 04-02 02:30
}
