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

// deliversAfterShutDown tells whether what is queued is still delivered then. The priority queue drops
// it, so that a workload has to wait for the last delivery first.
func deliversAfterShutDown(name string) bool {
	return name == clientGo
}

// A counter that other goroutines read, on its own cache line.
type counter struct {
	atomic.Uint64
	_ [56]byte
}

// shutDownAfter shuts a queue down after the last add: at once if it still delivers what is queued,
// and otherwise when isOver returns true.
func shutDownAfter[K comparable](queue workqueue.TypedInterface[K], name string, isOver func() bool) {
	for !deliversAfterShutDown(name) && !isOver() {
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
