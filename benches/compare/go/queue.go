package main

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
)

const clientGo, priorityQueue = "client-go", "priorityqueue"

// newQueue makes a queue without a name, which has no metrics to keep.
func newQueue[K comparable](name string) workqueue.TypedInterface[K] {
	if name == clientGo {
		return workqueue.NewTyped[K]()
	}
	return newDelaying[K](name)
}

// newDelaying makes a queue that can delay keys, too.
func newDelaying[K comparable](name string) workqueue.TypedDelayingInterface[K] {
	switch name {
	case clientGo:
		return workqueue.NewTypedDelayingQueue[K]()
	case priorityQueue:
		return priorityqueue.New[K]("")
	}
	panic("no queue " + name)
}

// takeAll gets and finishes the first keys, each once in any order.
func takeAll[K comparable](queue workqueue.TypedInterface[K], keys keys[K], count int) {
	var delivered tally
	for range count {
		key, _ := queue.Get()
		delivered.count(keys.fingerprint(key))
		queue.Done(key)
	}
	check("delivered", delivered, keys.tally(count, 1))
}

// A lap is when a goroutine ran.
type lap struct {
	start, end time.Time
}

// together runs goroutines that start at once.
func together(count int, run func(at int)) []lap {
	laps := make([]lap, count)
	var ready, over sync.WaitGroup
	ready.Add(count)
	for at := range laps {
		over.Go(func() {
			ready.Done()
			ready.Wait()
			laps[at].start = time.Now()
			run(at)
			laps[at].end = time.Now()
		})
	}
	over.Wait()
	return laps
}

// elapsed is the nanoseconds from the first start to the last end.
func elapsed(laps []lap) float64 {
	first := slices.MinFunc(laps, func(a, b lap) int { return a.start.Compare(b.start) })
	last := slices.MaxFunc(laps, func(a, b lap) int { return a.end.Compare(b.end) })
	return nanoseconds(last.end.Sub(first.start))
}

// What goroutines do that start together: producers, and consumers that get keys and finish them.
type race[K comparable] struct {
	queue workqueue.TypedInterface[K]
	keys  keys[K]
	// The keys that the consumers hold from the start.
	held                 []K
	producers, consumers int
	produce              func(at int)
	// What a consumer does between get and done, if anything.
	work func(consumer int, key K)
	// Whether all that was added has been delivered, once all producers have ended.
	isOver func(delivered uint64) bool
}

// A counter that other goroutines read, on its own cache line.
type counter struct {
	atomic.Uint64
	_ [56]byte
}

// run returns the laps, those of the producers first, and what was delivered. The queue is shut down
// after the last add: at once if it still delivers what is queued. The priority queue drops that, so that
// it is shut down after the last delivery.
func (r race[K]) run() ([]lap, tally) {
	_, isClientGo := r.queue.(*workqueue.Typed[K])
	done := make([]counter, r.consumers)
	var producing atomic.Int64
	producing.Store(int64(r.producers))
	shutDown := func() {
		for !isClientGo && !r.isOver(sum(done)) {
			time.Sleep(100 * time.Microsecond)
		}
		r.queue.ShutDown()
	}
	tallies := make([]tally, r.consumers)
	consume := func(at int) {
		var delivered tally
		one := func(key K) {
			delivered.count(r.keys.fingerprint(key))
			if r.work != nil {
				r.work(at, key)
			}
			r.queue.Done(key)
			if !isClientGo {
				done[at].Store(delivered.number)
			}
		}
		for _, key := range r.held[len(r.held)*at/r.consumers : len(r.held)*(at+1)/r.consumers] {
			one(key)
		}
		for key, over := r.queue.Get(); !over; key, over = r.queue.Get() {
			one(key)
		}
		tallies[at] = delivered
	}
	laps := together(r.producers+r.consumers, func(at int) {
		if at >= r.producers {
			consume(at - r.producers)
			return
		}
		r.produce(at)
		if producing.Add(-1) == 0 {
			go shutDown() // Not in here: the lap is that of the adds.
		}
	})
	var delivered tally
	for _, tally := range tallies {
		delivered.number += tally.number
		delivered.sum += tally.sum
	}
	check("left", r.queue.Len(), 0)
	return laps, delivered
}

// deliver runs the race until that is delivered, and checks it.
func (r race[K]) deliver(expected tally) float64 {
	r.isOver = func(delivered uint64) bool { return delivered == expected.number }
	laps, delivered := r.run()
	check("delivered", delivered, expected)
	return elapsed(laps)
}

func sum(counters []counter) uint64 {
	total := uint64(0)
	for at := range counters {
		total += counters[at].Load()
	}
	return total
}
