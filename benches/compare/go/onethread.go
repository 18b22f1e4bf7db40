package main

import (
	"runtime"
	"time"
)

// cycle takes recurring keys through add, get and done, one after the other.
func cycle[K comparable](name string, scale scale, nth func(int) K, tallied func(*tally, K)) response {
	queue := newQueue[K](name)
	keys := first(scale.Recurring, nth)
	passes := max(scale.Cycles/len(keys), 1)
	var delivered tally
	start := time.Now()
	for range passes {
		for _, key := range keys {
			queue.Add(key)
			item, _ := queue.Get()
			tallied(&delivered, item)
			queue.Done(item)
		}
	}
	ns := nanoseconds(time.Since(start)) / float64(delivered.Count)
	queue.ShutDown()
	return response{figures(ns), delivered}
}

// duplicate adds keys that are queued already.
func duplicate(name string, scale scale, threads int) response {
	queue := newQueue[uint64](name)
	keys := first(scale.Recurring, nthNumber)
	for _, key := range keys {
		queue.Add(key)
	}
	passes := max(scale.Duplicates/threads/len(keys), 1)
	racers := make([]func() tally, threads)
	for at := range racers {
		racers[at] = func() tally {
			for range passes {
				for _, key := range keys {
					queue.Add(key)
				}
			}
			return tally{}
		}
	}
	// A queue that only notes an add has made it when it returns its length.
	laps := race(racers)
	settling := time.Now()
	check("queued", queue.Len(), len(keys))
	ns := elapsed(laps) + nanoseconds(time.Since(settling))
	delivered := takeAll(queue, len(keys), tallyNumber)
	queue.ShutDown()
	return response{figures(ns / float64(passes*threads*len(keys))), delivered}
}

// memory is the bytes for a queued key, and what is left when all are done.
func memory(name string, scale scale) response {
	before := heap()
	queue := newQueue[uint64](name)
	for n := range scale.Keys {
		queue.Add(nthNumber(n))
	}
	check("queued", queue.Len(), scale.Keys)
	queued := (heap() - before) / float64(scale.Keys)
	delivered := takeAll(queue, scale.Keys, tallyNumber)
	check("left", queue.Len(), 0)
	left := heap() - before
	queue.ShutDown()
	return response{[]*float64{&queued, &left, nil}, delivered}
}

// heap is the bytes in use after a collection.
func heap() float64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return float64(stats.HeapAlloc)
}

// start makes queues that can delay keys, as ours can, and shuts them down: unused, and after a key has
// gone through.
func start(name string, scale scale) response {
	begun := time.Now()
	for range scale.Starts {
		newDelaying[uint64](name).ShutDown()
	}
	unused := nanoseconds(time.Since(begun)) / float64(scale.Starts)
	var delivered tally
	begun = time.Now()
	for range scale.Starts {
		queue := newDelaying[uint64](name)
		queue.Add(nthNumber(0))
		delivered.merge(takeAll(queue, 1, tallyNumber))
		queue.ShutDown()
	}
	used := nanoseconds(time.Since(begun)) / float64(scale.Starts)
	// Those of the queues above are to be gone.
	time.Sleep(10 * time.Millisecond)
	before := runtime.NumGoroutine()
	queue := newDelaying[uint64](name)
	queue.Add(nthNumber(0))
	started := float64(runtime.NumGoroutine() - before)
	queue.ShutDown()
	return response{figures(unused, used, started), delivered}
}
