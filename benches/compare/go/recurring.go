package main

import (
	"runtime"
	"sync/atomic"
	"time"
)

// Recurring keys of one goroutine, hot keys, and the keys of recur; as in Rust.
const recurring, hotKeys, returning = 1024, 64, 100_000

// passes is how often each key is added.
func passes(count, keys, threads int) int {
	return max(count/keys/threads, 1)
}

// cycle takes recurring keys through add, get and done, one after the other.
func cycle[K comparable](name string, kind keys[K], count int) []float64 {
	queue := newQueue[K](name)
	defer queue.ShutDown()
	keys := kind.first(recurring)
	passes := passes(count, recurring, 1)
	var delivered tally
	start := time.Now()
	for range passes {
		for _, key := range keys {
			queue.Add(key)
			item, _ := queue.Get()
			delivered.count(kind.fingerprint(item))
			queue.Done(item)
		}
	}
	ns := each(start, passes*recurring)
	check("delivered", delivered, kind.tally(recurring, passes))
	return []float64{ns}
}

// duplicate adds keys that are queued already.
func duplicate(name string, count, threads int) []float64 {
	queue := newQueue[uint64](name)
	defer queue.ShutDown()
	keys := numbers.first(recurring)
	add := func() {
		for _, key := range keys {
			queue.Add(key)
		}
	}
	add()
	passes := passes(count, recurring, threads)
	laps := together(threads, func(int) {
		for range passes {
			add()
		}
	})
	// A queue that only notes an add has made it when it returns its length.
	settling := time.Now()
	check("queued", queue.Len(), recurring)
	ns := elapsed(laps) + nanoseconds(time.Since(settling))
	takeAll(queue, numbers, recurring)
	return []float64{ns / float64(passes*threads*recurring)}
}

// recur adds the keys of a large working set round and round; see recurring.rs. The priority queue takes
// no part: a round would take it longer than all the others together.
func recur(name string, count int) []float64 {
	if name != clientGo {
		return nil
	}
	const burst = 1000
	queue := newQueue[uint64](name)
	keys := numbers.first(returning)
	adds := passes(count, returning, 1) * returning
	var delivered atomic.Int64
	ns := race[uint64]{
		queue: queue, keys: numbers, producers: 1, consumers: 1,
		produce: func(int) {
			for n := range adds {
				for n%burst == 0 && delivered.Load() < int64(n) {
					runtime.Gosched()
				}
				queue.Add(keys[n%returning])
			}
		},
		work: func(int, uint64) { delivered.Store(delivered.Load() + 1) },
	}.deliver(numbers.tally(returning, adds/returning))
	return []float64{ns / float64(adds)}
}
