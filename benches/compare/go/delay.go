package main

import (
	"math/bits"
	"syscall"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// The delays of delay.rs.
const (
	far   = 600 * time.Second
	burst = 200 * time.Millisecond
	lead  = 300 * time.Millisecond
)

// random is below most, the same for each key in every run.
func random(key uint64, most time.Duration) time.Duration {
	high, _ := bits.Mul64(key*0xD6E8FEB86659FD93, uint64(most))
	return time.Duration(high)
}

// setFar is the nanoseconds for each delay between half of far and all of it, less sooner.
func setFar(queue workqueue.TypedDelayingInterface[uint64], count int, sooner time.Duration) float64 {
	start := time.Now()
	for n := range count {
		key := numbers.nth(n)
		queue.AddAfter(key, far/2+random(key, far/2)-sooner)
	}
	// A queue that only notes a delay has set it when it returns its length; nothing is due.
	check("due", queue.Len(), 0)
	return each(start, count)
}

func delay(name, of string, count int) []float64 {
	queue := newDelaying[uint64](name)
	defer queue.ShutDown()
	switch of {
	case "insert":
		return []float64{setFar(queue, count, 0)}
	case "fire":
		return fire(queue, count)
	case "reset":
		setFar(queue, count, 0)
		// Neither queue can take a delay back.
		return []float64{setFar(queue, count, far/4)}
	case "memory":
		before := heap()
		setFar(queue, count, 0)
		return []float64{(heap() - before) / float64(count)}
	}
	panic("no delays " + of)
}

// fire is how late keys come that are due within a moment of each other, in microseconds, and the
// processor time of it all for a key.
func fire(queue workqueue.TypedDelayingInterface[uint64], count int) []float64 {
	used := processorTime()
	start := time.Now().Add(lead)
	due := func(key uint64) time.Time { return start.Add(random(key, burst)) }
	go func() {
		for n := range count {
			key := numbers.nth(n)
			queue.AddAfter(key, max(time.Until(due(key)), 0))
		}
	}()
	late := make([]float64, count)
	var delivered tally
	for at := range late {
		key, _ := queue.Get()
		late[at] = nanoseconds(time.Since(due(key))) / 1000
		delivered.count(key)
		queue.Done(key)
	}
	used = processorTime() - used
	check("delivered", delivered, numbers.tally(count, 1))
	return append(quantiles(late, 0.5, 0.99, 1), used/float64(count))
}

// processorTime is the nanoseconds that this process has had of all processors.
func processorTime() float64 {
	var usage syscall.Rusage
	must(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return float64(usage.Utime.Nano() + usage.Stime.Nano())
}
