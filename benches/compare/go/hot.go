package main

import "sync/atomic"

// A key that is added over and over; see hot.rs.
type hotKey struct {
	// Producers that are about to add it for the last time, or have.
	announced atomic.Int64
	// The most announcements that a delivery of it has seen.
	seen atomic.Int64
}

// hot adds the keys of all events over and over while they are worked on: the nanoseconds for each add
// until the last add, and until the last delivery.
func hot[K comparable](name string, kind keys[K], events []K, count, threads int, work work) []float64 {
	passes := passes(count, len(events), threads)
	last := make(map[K]int)
	for at, key := range events {
		last[key] = at
	}
	keys := make(map[K]*hotKey, len(last))
	queue := newQueue[K](name)
	for key := range last {
		keys[key] = new(hotKey)
		queue.Add(key)
	}
	// A worker holds every key as the race starts.
	held := make([]K, len(keys))
	for at := range held {
		held[at], _ = queue.Get()
	}
	unserved := func() int {
		unserved := 0
		for _, key := range keys {
			if key.seen.Load() != int64(threads) {
				unserved++
			}
		}
		return unserved
	}
	laps, delivered := race[K]{
		queue: queue, keys: kind, held: held, producers: threads, consumers: threads,
		produce: func(int) {
			for range passes - 1 {
				for _, key := range events {
					queue.Add(key)
				}
			}
			for at, key := range events {
				if last[key] == at {
					keys[key].announced.Add(1)
				}
				queue.Add(key)
			}
		},
		work: func(consumer int, key K) {
			hot := keys[key]
			if announced := hot.announced.Load(); announced > hot.seen.Load() {
				hot.seen.Store(announced) // Only this worker has the key.
			}
			work.run(consumer)
		},
		isOver: func(uint64) bool { return unserved() == 0 && queue.Len() == 0 },
	}.run()
	check("keys not delivered after their last add", unserved(), 0)
	adds := passes * threads * len(events)
	if delivered.number > uint64(adds+len(keys)) {
		panic("more deliveries than adds")
	}
	return []float64{elapsed(laps[:threads]) / float64(adds), elapsed(laps) / float64(adds)}
}
