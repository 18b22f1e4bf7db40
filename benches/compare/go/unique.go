package main

import (
	"runtime"
	"sync/atomic"
	"time"
)

// flow moves distinct keys from producers to as many consumers: the nanoseconds for each.
func flow[K comparable](name string, kind keys[K], count, threads int, work work) float64 {
	queue := newQueue[K](name)
	keys := kind.first(count)
	race := race[K]{
		queue: queue, keys: kind, producers: threads, consumers: threads,
		produce: func(at int) {
			for n, key := range keys[count*at/threads : count*(at+1)/threads] {
				// As often as the other program, and for as long.
				for n%128 == 0 && queue.Len() >= 8192 {
					runtime.Gosched()
				}
				queue.Add(key)
			}
		},
	}
	if work.steps > 0 {
		race.work = func(consumer int, _ K) { work.run(consumer) }
	}
	return race.deliver(kind.tally(count, 1)) / float64(count)
}

// backlog adds new keys while many wait for a thousand workers.
func backlog(name string, count int) []float64 {
	queue := newQueue[uint64](name)
	for n := range count {
		queue.Add(numbers.nth(n))
	}
	check("preloaded", queue.Len(), count)
	all := count + count/10
	var hurry atomic.Bool
	var ns float64
	race[uint64]{
		queue: queue, keys: numbers, producers: 1, consumers: max(count/1000, 100),
		produce: func(int) {
			time.Sleep(20 * time.Millisecond)
			start := time.Now()
			for n := count; n < all; n++ {
				queue.Add(numbers.nth(n))
			}
			left := queue.Len()
			ns = each(start, all-count)
			check("out of keys before the adds", left == 0, false)
			hurry.Store(true)
		},
		work: func(int, uint64) {
			if !hurry.Load() {
				time.Sleep(time.Millisecond)
			}
		},
	}.deliver(numbers.tally(all, 1))
	return []float64{ns}
}

// memory is the bytes for a queued key, and what is left when all are done.
func memory(name string, count int) []float64 {
	before := heap()
	queue := newQueue[uint64](name)
	defer queue.ShutDown()
	for n := range count {
		queue.Add(numbers.nth(n))
	}
	check("queued", queue.Len(), count)
	queued := (heap() - before) / float64(count)
	takeAll(queue, numbers, count)
	check("left", queue.Len(), 0)
	return []float64{queued, heap() - before}
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
func start(name string, count int) []float64 {
	begun := time.Now()
	for range count {
		newDelaying[uint64](name).ShutDown()
	}
	unused := each(begun, count)
	begun = time.Now()
	for range count {
		queue := newDelaying[uint64](name)
		queue.Add(numbers.nth(0))
		takeAll(queue, numbers, 1)
		queue.ShutDown()
	}
	used := each(begun, count)
	// Those of the queues above are to be gone.
	time.Sleep(10 * time.Millisecond)
	before := runtime.NumGoroutine()
	queue := newDelaying[uint64](name)
	defer queue.ShutDown()
	queue.Add(numbers.nth(0))
	return []float64{unused, used, float64(runtime.NumGoroutine() - before)}
}
