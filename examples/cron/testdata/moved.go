package time

import "syscall"

// ahead is by how many nanoseconds the clock of this process is ahead of the machine's.
var ahead = func() (n int64) {
	text, _ := syscall.Getenv("CRON_DEMO_PROCESS_SKEW")
	sign := int64(1)
	for _, c := range text {
		if c == '-' {
			sign = -1
		} else {
			n = 10*n + int64(c-'0')
		}
	}
	return sign * n
}()

// moved is runtimeNow of that clock.
func moved() (sec int64, nsec int32, mono int64) {
	sec, nsec, mono = runtimeNow()
	total := int64(nsec) + ahead
	sec += total / 1e9
	if total %= 1e9; total < 0 {
		sec, total = sec-1, total+1e9
	}
	return sec, int32(total), mono
}
