package main

import (
	"time"

	"golang.org/x/time/rate"
	"k8s.io/client-go/util/workqueue"
)

// limiters asks and forgets, on keys that fail over and over. They are client-go's; the priority queue
// has none of its own.
func limiters(name string, scale scale, limiter string, threads int) response {
	if name != clientGo {
		return response{}
	}
	asked := newLimiter(limiter)
	keys := first(scale.Recurring, nthNumber)
	passes := max(scale.Cycles/len(keys)/threads, 1)
	racers := make([]func() tally, threads)
	for at := range racers {
		racers[at] = func() tally {
			for range passes {
				for _, key := range keys {
					asked.When(key)
					asked.Forget(key)
				}
			}
			return tally{}
		}
	}
	laps := race(racers)
	for _, key := range keys {
		check("failures", asked.NumRequeues(key), 0)
	}
	return response{figures(elapsed(laps) / float64(passes*threads*len(keys))), tally{}}
}

func newLimiter(name string) workqueue.TypedRateLimiter[uint64] {
	const base, most = 5 * time.Millisecond, 1000 * time.Second
	switch name {
	case "exponential":
		return workqueue.NewTypedItemExponentialFailureRateLimiter[uint64](base, most)
	case "fast-slow":
		return workqueue.NewTypedItemFastSlowRateLimiter[uint64](base, most, 3)
	case "bucket":
		return &workqueue.TypedBucketRateLimiter[uint64]{Limiter: rate.NewLimiter(10, 100)}
	case "controller":
		return workqueue.DefaultTypedControllerRateLimiter[uint64]()
	}
	panic("no limiter " + name)
}
