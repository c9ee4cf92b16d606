package playground

import (
	"os"
	"slices"
	"testing"
	"time"
)

// A playground that is left open under bursts does not grow, and its page goes on answering. LOCKKIT_LEFT_OPEN sets how
// long it is left open (make playground-hour).
func TestLeftOpen(t *testing.T) {
	long, err := time.ParseDuration(os.Getenv("LOCKKIT_LEFT_OPEN"))
	if err != nil {
		t.Skip("make playground-hour takes an hour for it")
	}
	for name, path := range map[string]string{"redis-server": os.Getenv("PATH"), "embedded nodes": ""} {
		t.Run(name, func(t *testing.T) {
			needBrowser(t)
			t.Parallel()
			leftOpen(t, path, long)
		})
	}
}

func leftOpen(t *testing.T, path string, long time.Duration) {
	const most = 150 // MB, for the server and for the page's heap
	p := started(t, "127.0.0.1:0", "PATH="+path)
	b := newTab(t, 1280, 900, "light")
	b.open(p)

	var frames []time.Duration
	begin, minute := time.Now(), time.Now()
	for bursts := time.NewTicker(5 * time.Second); time.Since(begin) < long; <-bursts.C {
		b.press(`[data-do=burst_http]`)
		b.press(`[data-do=burst_tasks]`)
		frames = append(frames, time.Duration(value[float64](b, `new Promise(done => {
			const from = performance.now();
			requestAnimationFrame(() => setTimeout(() => done(performance.now() - from)));
		})`)*float64(time.Millisecond)))
		if time.Since(minute) < time.Minute {
			continue
		}
		minute = time.Now()
		server, others := p.memory(t)
		heap := value[float64](b, `performance.memory.usedJSHeapSize`) / (1 << 20)
		nodes := value[int](b, `document.querySelectorAll('*').length`)
		t.Logf("after %v: server %d MB, its processes %d MB, the page %.0f MB and %d elements", time.Since(begin).Round(time.Second), server, others, heap, nodes)
		if server > most || heap > most {
			t.Errorf("more than %d MB", most)
		}
	}

	slices.Sort(frames)
	at := func(percent int) time.Duration { return frames[(len(frames)-1)*percent/100].Round(time.Millisecond) }
	t.Logf("the next frame came after %v, p99 %v, at most %v", at(50), at(99), at(100))
	if at(99) > time.Second {
		t.Error("the page does not answer at once")
	}
	b.await(green + " && document.querySelector('#counters .bad') === null && document.querySelector('#seen').dataset.overlaps === '0'")
}
