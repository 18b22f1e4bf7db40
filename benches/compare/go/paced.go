package main

import (
	"slices"
	"time"
)

// latency adds keys at set times and counts from those; see paced.rs.
func latency(name string, count int, interval float64) []float64 {
	start := time.Now().Add(10 * time.Millisecond)
	paced := paced(name, count, func(n int) time.Time {
		due := start.Add(time.Duration(float64(n) * interval))
		for time.Now().Before(due) {
		}
		return due
	})
	return append([]float64{interval}, quantiles(paced, 0.5, 0.99, 0.999)...)
}

// wake takes the time from an add to the get of a consumer that waits.
func wake(name string, count int) []float64 {
	return quantiles(paced(name, count, func(int) time.Time {
		time.Sleep(500 * time.Microsecond)
		return time.Now()
	}), 0.5, 0.99)
}

// paced adds each key after a call of wait, and returns the nanoseconds from the times that it returned
// to the gets of the keys.
func paced(name string, count int, wait func(n int) time.Time) []float64 {
	queue := newQueue[uint64](name)
	added := make([]time.Time, count)
	latencies := make([]float64, 0, count)
	race[uint64]{
		queue: queue, keys: numbers, producers: 1, consumers: 1,
		produce: func(int) {
			for n := range added {
				added[n] = wait(n)
				queue.Add(numbers.nth(n))
			}
		},
		work: func(_ int, key uint64) {
			latencies = append(latencies, nanoseconds(time.Since(added[number(key)])))
		},
	}.deliver(numbers.tally(count, 1))
	return latencies
}

func quantiles(values []float64, at ...float64) []float64 {
	slices.Sort(values)
	for n, q := range at {
		at[n] = values[min(int(q*float64(len(values))), len(values)-1)]
	}
	return at
}
