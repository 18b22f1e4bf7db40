package main

import (
	"time"

	"k8s.io/client-go/util/workqueue"
)

// limiter asks and forgets, on keys that fail over and over. The limiters are client-go's; the priority
// queue has none itself.
func limiter(name, kind string, count, threads int) []float64 {
	if name != clientGo {
		return nil
	}
	limiter := newLimiter(kind)
	keys := numbers.first(recurring)
	passes := passes(count, recurring, threads)
	laps := together(threads, func(int) {
		for range passes {
			for _, key := range keys {
				limiter.When(key)
				limiter.Forget(key)
			}
		}
	})
	for _, key := range keys {
		check("failures", limiter.NumRequeues(key), 0)
	}
	return []float64{elapsed(laps) / float64(passes*threads*recurring)}
}

func newLimiter(name string) workqueue.TypedRateLimiter[uint64] {
	const base, most = 5 * time.Millisecond, 1000 * time.Second
	switch name {
	case "exponential":
		return workqueue.NewTypedItemExponentialFailureRateLimiter[uint64](base, most)
	case "controller":
		return workqueue.DefaultTypedControllerRateLimiter[uint64]()
	}
	panic("no limiter " + name)
}
