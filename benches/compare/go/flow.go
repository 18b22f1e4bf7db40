package main

import (
	"runtime"
	"sync/atomic"
)

// flow moves distinct keys from producers to consumers.
func flow[K comparable](name string, count int, crowd crowd, nth func(int) K, tallied func(*tally, K)) response {
	ns, delivered := flowWith(name, count, crowd, nth, tallied, work{})
	return response{figures(ns), delivered}
}

func flowWorked(name string, scale scale, crowd crowd) response {
	work := calibrated(scale.WorkNs)
	ideal := work.measure(5_000) / float64(min(crowd.Consumers, runtime.NumCPU()))
	whole, delivered := flowWith(name, scale.Keys, crowd, nthNumber, tallyNumber, work)
	return response{figures(whole, whole-ideal), delivered}
}

// flowWith is the nanoseconds for a key, and what was delivered.
func flowWith[K comparable](
	name string, count int, crowd crowd, nth func(int) K, tallied func(*tally, K), work work,
) (float64, tally) {
	queue := newQueue[K](name)
	keys := first(count, nth)
	var producing atomic.Int64
	producing.Store(int64(crowd.Producers))
	done := make([]counter, crowd.Consumers)

	var racers []func() tally
	for producer := range crowd.Producers {
		share := keys[count*producer/crowd.Producers : count*(producer+1)/crowd.Producers]
		racers = append(racers, func() tally {
			for _, key := range share {
				queue.Add(key)
			}
			if producing.Add(-1) == 0 {
				shutDownAfter(queue, name, func() bool { return sum(done) == uint64(count) })
			}
			return tally{}
		})
	}
	counts := !deliversAfterShutDown(name)
	for consumer := range crowd.Consumers {
		racers = append(racers, func() tally {
			var delivered tally
			for {
				key, over := queue.Get()
				if over {
					return delivered
				}
				tallied(&delivered, key)
				if work.steps > 0 {
					work.run(consumer)
				}
				queue.Done(key)
				if counts {
					done[consumer].Store(delivered.Count)
				}
			}
		})
	}
	laps := race(racers)
	check("left", queue.Len(), 0)
	return elapsed(laps) / float64(count), deliveredBy(laps)
}
