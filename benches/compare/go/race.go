package main

import (
	"sync"
	"time"
)

// A lap is what one goroutine of a race was at, and when.
type lap struct {
	start, end time.Time
	delivered  tally
}

// race starts all at once and waits for them.
func race(racers []func() tally) []lap {
	laps := make([]lap, len(racers))
	var ready, over sync.WaitGroup
	ready.Add(len(racers))
	for at, racer := range racers {
		over.Go(func() {
			ready.Done()
			ready.Wait()
			laps[at].start = time.Now()
			laps[at].delivered = racer()
			laps[at].end = time.Now()
		})
	}
	over.Wait()
	return laps
}

// elapsed is the nanoseconds from the first start to the last end.
func elapsed(laps []lap) float64 {
	start, end := laps[0].start, laps[0].end
	for _, lap := range laps[1:] {
		if lap.start.Before(start) {
			start = lap.start
		}
		if lap.end.After(end) {
			end = lap.end
		}
	}
	return nanoseconds(end.Sub(start))
}

func nanoseconds(d time.Duration) float64 {
	return float64(d.Nanoseconds())
}

func deliveredBy(laps []lap) tally {
	var all tally
	for _, lap := range laps {
		all.merge(lap.delivered)
	}
	return all
}
