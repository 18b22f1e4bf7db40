package main

import (
	"runtime"
	"slices"
	"sync/atomic"
	"time"
)

// latency adds keys at set times and counts from those; see latency.rs.
func latency(name string, scale scale, pace string) response {
	interval := scale.CommonInterval
	if pace == "own" {
		ns, _ := flowWith(name, scale.Paced, crowd{1, 1}, nthNumber, tallyNumber, work{})
		interval = 2 * ns
		runtime.GC()
	}
	queue := newQueue[uint64](name)
	keys := first(scale.Paced, nthNumber)
	latencies := make([]float64, 0, len(keys))
	done := make([]counter, 1)
	start := time.Now().Add(time.Millisecond)
	due := func(n int) time.Time {
		return start.Add(time.Duration(float64(n) * interval))
	}
	laps := race([]func() tally{
		func() tally {
			for n, key := range keys {
				due := due(n)
				for time.Now().Before(due) {
				}
				queue.Add(key)
			}
			shutDownAfter(queue, name, func() bool { return sum(done) == uint64(len(keys)) })
			return tally{}
		},
		func() tally {
			var delivered tally
			for {
				key, over := queue.Get()
				if over {
					return delivered
				}
				latencies = append(latencies, nanoseconds(time.Since(due(number(key)))))
				delivered.count(key)
				queue.Done(key)
				done[0].Store(delivered.Count)
			}
		},
	})
	slices.Sort(latencies)
	return response{
		figures(interval, quantile(latencies, 0.5), quantile(latencies, 0.99), quantile(latencies, 0.999)),
		deliveredBy(laps),
	}
}

// quantile of sorted values.
func quantile(values []float64, q float64) float64 {
	return values[min(int(q*float64(len(values))), len(values)-1)]
}

// wake takes the time from an add to the get of a consumer that waits.
func wake(name string, scale scale) response {
	queue := newQueue[uint64](name)
	epoch := time.Now()
	var addedAt atomic.Int64
	latencies := make([]float64, 0, scale.Wakes)
	done := make([]counter, 1)
	consumed := make(chan tally)
	go func() {
		var delivered tally
		for {
			key, over := queue.Get()
			if over {
				break
			}
			latencies = append(latencies, nanoseconds(time.Since(epoch))-float64(addedAt.Load()))
			delivered.count(key)
			queue.Done(key)
			done[0].Store(delivered.Count)
		}
		consumed <- delivered
	}()
	for n := range scale.Wakes {
		time.Sleep(500 * time.Microsecond)
		addedAt.Store(time.Since(epoch).Nanoseconds())
		queue.Add(nthNumber(n))
	}
	shutDownAfter(queue, name, func() bool { return sum(done) == uint64(scale.Wakes) })
	delivered := <-consumed
	slices.Sort(latencies)
	return response{figures(quantile(latencies, 0.5), quantile(latencies, 0.99)), delivered}
}
