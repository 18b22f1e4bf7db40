package main

import (
	"runtime"
	"sync/atomic"
)

// The adds that the producer of recur makes before it waits for the consumer, as in recur.rs.
const returningBurst = 1000

// recur adds the keys of a large working set round and round; see recur.rs. The priority queue takes
// no part: a round would take it longer than all the others together.
func recur(name string, scale scale) response {
	if name != clientGo {
		return response{}
	}
	queue := newQueue[uint64](name)
	keys := first(scale.Returning, nthNumber)
	adds := scale.Returns * len(keys)
	var finished atomic.Int64
	waitFor := func(count int) {
		for finished.Load() < int64(count) {
			runtime.Gosched()
		}
	}
	laps := race([]func() tally{
		func() tally {
			for n := range adds {
				if n%returningBurst == 0 {
					waitFor(n)
				}
				queue.Add(keys[n%len(keys)])
			}
			waitFor(adds)
			queue.ShutDown()
			return tally{}
		},
		func() tally {
			var delivered tally
			for {
				key, over := queue.Get()
				if over {
					return delivered
				}
				delivered.count(key)
				queue.Done(key)
				finished.Store(int64(delivered.Count))
			}
		},
	})
	check("left", queue.Len(), 0)
	return response{figures(elapsed(laps) / float64(adds)), deliveredBy(laps)}
}
