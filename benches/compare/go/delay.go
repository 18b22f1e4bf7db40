package main

import (
	"math/bits"
	"slices"
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

func farOf(key uint64) time.Duration {
	return far/2 + random(key, far/2)
}

func setFar(queue workqueue.TypedDelayingInterface[uint64], count int) {
	for n := range count {
		key := nthNumber(n)
		queue.AddAfter(key, farOf(key))
	}
	// A queue that only notes a delay has set it when it returns its length; nothing is due.
	check("due", queue.Len(), 0)
}

func delay(name string, scale scale, of string) response {
	queue := newDelaying[uint64](name)
	defer queue.ShutDown()
	count := scale.Keys
	each := func(d time.Duration) float64 { return nanoseconds(d) / float64(count) }
	switch of {
	case "insert":
		start := time.Now()
		setFar(queue, count)
		return response{figures(each(time.Since(start))), tally{}}
	case "fire":
		return fire(queue, scale.Fired)
	case "reset":
		setFar(queue, count)
		start := time.Now()
		for n := range count {
			key := nthNumber(n)
			queue.AddAfter(key, farOf(key)-far/4)
		}
		check("due", queue.Len(), 0)
		moved := each(time.Since(start))
		// Neither queue can take a delay back.
		return response{[]*float64{&moved, nil}, tally{}}
	case "memory":
		before := heap()
		setFar(queue, count)
		return response{figures((heap() - before) / float64(count)), tally{}}
	}
	panic("no delays " + of)
}

// fire is how late keys come that are due within a moment of each other, in microseconds, and the
// processor time of it all for a key.
func fire(queue workqueue.TypedDelayingInterface[uint64], count int) response {
	used := processorTime()
	start := time.Now().Add(lead)
	due := func(key uint64) time.Time { return start.Add(random(key, burst)) }
	go func() {
		for n := range count {
			key := nthNumber(n)
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
	slices.Sort(late)
	return response{
		figures(quantile(late, 0.5), quantile(late, 0.99), late[count-1], used/float64(count)),
		delivered,
	}
}

// processorTime is the nanoseconds that this process has had of all processors.
func processorTime() float64 {
	var usage syscall.Rusage
	must(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return float64(usage.Utime.Nano() + usage.Stime.Nano())
}
