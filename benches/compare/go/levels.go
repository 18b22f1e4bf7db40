package main

import (
	"time"

	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
)

// urgentBesideBacklog takes urgent keys through add, get and done, while a backlog of less urgent ones waits.
func urgentBesideBacklog(name string, count int) []float64 {
	if name != priorityQueue {
		return nil
	}
	queue := priorityqueue.New[uint64]("")
	defer queue.ShutDown()
	low, urgent := -100, 100
	for n := range count {
		queue.AddWithOpts(priorityqueue.AddOpts{Priority: &low}, numbers.nth(n))
	}
	check("preloaded", queue.Len(), count)
	all := count + count/10
	var delivered tally
	start := time.Now()
	for n := count; n < all; n++ {
		queue.AddWithOpts(priorityqueue.AddOpts{Priority: &urgent}, numbers.nth(n))
		key, _ := queue.Get()
		delivered.count(numbers.fingerprint(key))
		queue.Done(key)
	}
	ns := each(start, all-count)
	check("left", queue.Len(), count)
	for range count {
		key, _ := queue.Get()
		delivered.count(numbers.fingerprint(key))
		queue.Done(key)
	}
	check("delivered", delivered, numbers.tally(all, 1))
	return []float64{ns}
}
