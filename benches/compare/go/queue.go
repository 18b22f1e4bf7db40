package main

import (
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

// handsOutAfterShutDown tells whether what is queued is still delivered then. The priority queue drops
// it, so that a workload has to wait for the last delivery first.
func handsOutAfterShutDown(name string) bool {
	return name == clientGo
}

// A counter that others look at, on a cache line of its own.
type counter struct {
	atomic.Uint64
	_ [56]byte
}

// shutDownAfter ends a queue when nobody adds any more: at once where what is queued is still handed
// out, and otherwise when isOver says that everything has been delivered.
func shutDownAfter[K comparable](queue workqueue.TypedInterface[K], name string, isOver func() bool) {
	for !handsOutAfterShutDown(name) && !isOver() {
		time.Sleep(100 * time.Microsecond)
	}
	queue.ShutDown()
}

func sum(counters []counter) uint64 {
	total := uint64(0)
	for at := range counters {
		total += counters[at].Load()
	}
	return total
}

// takeAll gets and finishes that many keys.
func takeAll[K comparable](queue workqueue.TypedInterface[K], count int, tallied func(*tally, K)) tally {
	var delivered tally
	for range count {
		key, _ := queue.Get()
		tallied(&delivered, key)
		queue.Done(key)
	}
	return delivered
}
