package main

import (
	"math"
	"time"
)

// Work of a known length on a key, as in work.rs: dependent multiplications, no clock.
type work struct {
	steps int
}

// Written to, so that the work is not left out.
var sink [64][8]uint64

func calibrated(ns float64) work {
	probe := work{10_000}
	return work{int(math.Round(ns * float64(probe.steps) / probe.measure(2_000)))}
}

// run does it once, for a goroutine with that number.
func (w work) run(goroutine int) {
	x := uint64(w.steps)
	for range w.steps {
		x *= x | 5
	}
	sink[goroutine%len(sink)][0] += x
}

// measure is the nanoseconds that one run takes now: the fastest of ten blocks.
func (w work) measure(runs int) float64 {
	least := math.Inf(1)
	for range 10 {
		start := time.Now()
		for range runs / 10 {
			w.run(0)
		}
		least = min(least, each(start, runs/10))
	}
	return least
}
