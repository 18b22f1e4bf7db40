package main

import (
	"fmt"
	"sync/atomic"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// A key that is added over and over; see hot.rs.
type hotKey struct {
	// Producers that are about to add it for the last time, or have.
	announced atomic.Int64
	// The most announcements that a delivery of it has seen.
	seen atomic.Int64
}

func (k *hotKey) deliver() {
	announced := k.announced.Load()
	if announced > k.seen.Load() {
		k.seen.Store(announced) // Only this worker has the key.
	}
}

// served tells whether every key was delivered after its last add.
func served[K comparable](keys map[K]*hotKey, producers int64) bool {
	for _, key := range keys {
		if key.seen.Load() != producers {
			return false
		}
	}
	return true
}

func checkServed[K comparable](keys map[K]*hotKey, producers int64) {
	for key, hot := range keys {
		check(fmt.Sprintf("last adds of %v that were delivered", key), hot.seen.Load(), producers)
	}
}

// hot adds a few keys over and over while they are worked on.
func hot(name string, scale scale, crowd crowd) response {
	passes := max(scale.HotAdds/crowd.Producers/scale.HotKeys, 1)
	work := calibrated(scale.WorkNs)
	keys := first(scale.HotKeys, nthNumber)
	hotKeys := make(map[uint64]*hotKey, len(keys))
	for _, key := range keys {
		hotKeys[key] = new(hotKey)
	}
	// A worker holds every key as the race starts.
	queue := newQueue[uint64](name)
	for _, key := range keys {
		queue.Add(key)
	}
	held := make([]uint64, len(keys))
	for at := range held {
		held[at], _ = queue.Get()
	}

	var producing atomic.Int64
	producing.Store(int64(crowd.Producers))
	isOver := func() bool {
		return served(hotKeys, int64(crowd.Producers)) && queue.Len() == 0
	}
	var racers []func() tally
	for range crowd.Producers {
		racers = append(racers, func() tally {
			for range passes - 1 {
				for _, key := range keys {
					queue.Add(key)
				}
			}
			for _, key := range keys {
				hotKeys[key].announced.Add(1)
				queue.Add(key)
			}
			if producing.Add(-1) == 0 {
				// Not in here: the lap is that of the adds.
				go shutDownAfter(queue, name, isOver)
			}
			return tally{}
		})
	}
	for consumer := range crowd.Consumers {
		low := len(held) * consumer / crowd.Consumers
		high := len(held) * (consumer + 1) / crowd.Consumers
		racers = append(racers, func() tally {
			return consumeHot(queue, held[low:high], hotKeys, work, consumer)
		})
	}
	laps := race(racers)
	checkServed(hotKeys, int64(crowd.Producers))
	check("left", queue.Len(), 0)
	adds := float64(passes * crowd.Producers * len(keys))
	if float64(deliveredBy(laps).Count) > adds+float64(len(keys)) {
		panic("more deliveries than adds")
	}
	return response{figures(elapsed(laps[:crowd.Producers])/adds, elapsed(laps)/adds), tally{}}
}

func consumeHot(
	queue workqueue.TypedInterface[uint64], held []uint64, keys map[uint64]*hotKey, work work, consumer int,
) tally {
	var delivered tally
	one := func(key uint64) {
		keys[key].deliver()
		work.run(consumer)
		delivered.Count++
		queue.Done(key)
	}
	for _, key := range held {
		one(key)
	}
	for {
		key, over := queue.Get()
		if over {
			return delivered
		}
		one(key)
	}
}

// replay adds the key of each event of a log, over and over.
func replay(name string, events []string, passes int) response {
	last := make(map[string]int)
	for at, key := range events {
		last[key] = at
	}
	keys := make(map[string]*hotKey, len(last))
	for key := range last {
		keys[key] = new(hotKey)
	}
	queue := newQueue[string](name)
	laps := race([]func() tally{
		func() tally {
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
			shutDownAfter(queue, name, func() bool { return served(keys, 1) && queue.Len() == 0 })
			return tally{}
		},
		func() tally {
			var delivered tally
			for {
				key, over := queue.Get()
				if over {
					return delivered
				}
				keys[key].deliver()
				delivered.Count++
				queue.Done(key)
			}
		},
	})
	checkServed(keys, 1)
	count := passes * len(events)
	if deliveredBy(laps).Count > uint64(count) {
		panic("more deliveries than adds")
	}
	return response{figures(elapsed(laps) / float64(count)), tally{}}
}

// backlog adds new keys while a million wait for a thousand workers.
func backlog(name string, scale scale) response {
	queue := newQueue[uint64](name)
	for n := range scale.Keys {
		queue.Add(nthNumber(n))
	}
	check("preloaded", queue.Len(), scale.Keys)
	all := scale.Keys + scale.BacklogAdds
	var hurry atomic.Bool
	done := make([]counter, scale.BacklogWorkers)
	tallies := make(chan tally)
	for worker := range scale.BacklogWorkers {
		go func() {
			var delivered tally
			for {
				key, over := queue.Get()
				if over {
					break
				}
				delivered.count(key)
				if !hurry.Load() {
					time.Sleep(time.Millisecond)
				}
				queue.Done(key)
				done[worker].Store(delivered.Count)
			}
			tallies <- delivered
		}()
	}
	time.Sleep(20 * time.Millisecond)

	start := time.Now()
	for n := scale.Keys; n < all; n++ {
		queue.Add(nthNumber(n))
	}
	left := queue.Len()
	ns := nanoseconds(time.Since(start)) / float64(scale.BacklogAdds)
	if left == 0 {
		panic("the keys have run out before the adds")
	}
	hurry.Store(true)
	shutDownAfter(queue, name, func() bool { return sum(done) == uint64(all) })
	var delivered tally
	for range scale.BacklogWorkers {
		delivered.merge(<-tallies)
	}
	return response{figures(ns), delivered}
}
