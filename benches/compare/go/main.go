// The Go contenders of the comparison, in a separate process.
//
// Reads requests from standard input, one a line (which queue, which workload, how much of it), and
// writes a line with the figures for each; null if the workload does not apply. The harness in Rust has
// the same workloads, and says what they are. A wrong count is a panic.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"
)

type request struct {
	Queue string
	Round round
}

type round struct {
	Kind           string
	Threads, Count int
	Interval       float64
	Events         []string
}

func main() {
	requests := bufio.NewReaderSize(os.Stdin, 1<<20)
	responses := json.NewEncoder(os.Stdout)
	for {
		line, err := requests.ReadBytes('\n')
		if err != nil {
			return // The harness has ended.
		}
		var asked request
		must(json.Unmarshal(line, &asked))
		// What the last round has left is collected before this one.
		runtime.GC()
		figures := run(asked.Queue, asked.Round)
		// A collection that starts late would run during the next round.
		runtime.GC()
		must(responses.Encode(figures))
	}
}

// run returns the figures of a round. Those that a queue cannot have are left out at the end.
func run(name string, round round) []float64 {
	count, threads := round.Count, round.Threads
	kind, part, _ := strings.Cut(round.Kind, "-")
	switch kind {
	case "cycle":
		if part == "string" {
			return cycle(name, texts, count)
		}
		return cycle(name, numbers, count)
	case "duplicate":
		return duplicate(name, count, threads)
	case "recur":
		return recur(name, count)
	case "unique":
		if part == "string" {
			return []float64{flow(name, texts, count, threads, work{})}
		}
		return []float64{flow(name, numbers, count, threads, work{})}
	case "work":
		work := calibrated(500)
		ideal := work.measure(5_000) / float64(min(threads, runtime.NumCPU()))
		whole := flow(name, numbers, count, threads, work)
		return []float64{whole, whole - ideal}
	case "hot":
		return hot(name, numbers, numbers.first(hotKeys), count, threads, calibrated(500))
	case "replay":
		return hot(name, texts, round.Events, count, threads, work{})[1:]
	case "backlog":
		return backlog(name, count)
	case "levels":
		if part == "backlog" {
			return urgentBesideBacklog(name, count)
		}
	case "latency":
		return latency(name, count, round.Interval)
	case "wake":
		return wake(name, count)
	case "delay":
		return delay(name, part, count)
	case "limiter":
		return limiter(name, part, count, threads)
	case "memory":
		return memory(name, count)
	case "start":
		return start(name, count)
	}
	return nil
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// check panics with the values unless they are the same.
func check[T comparable](what string, got, expected T) {
	if got != expected {
		panic(fmt.Sprintf("%s: %v, expected %v", what, got, expected))
	}
}

func nanoseconds(d time.Duration) float64 {
	return float64(d.Nanoseconds())
}

// each is the nanoseconds since then for each of a number.
func each(start time.Time, count int) float64 {
	return nanoseconds(time.Since(start)) / float64(count)
}
