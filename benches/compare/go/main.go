// The Go contenders of the comparison, in a process of their own.
//
// Reads requests from standard input, one a line (which queue, which workload, how much of it), and
// writes a line for each: the figures, and a tally of what was delivered. The harness in Rust, which
// has the same workloads, checks the tally. A wrong count is a panic.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
)

type request struct {
	Queue    string   `json:"queue"`
	Workload workload `json:"workload"`
	Scale    scale    `json:"scale"`
	Events   []string `json:"events"`
	Passes   int      `json:"passes"`
}

// The fields other than Kind are set for the workloads that use them.
type workload struct {
	Kind    string `json:"kind"`
	By      string `json:"by"`
	Keys    string `json:"keys"`
	Of      string `json:"of"`
	Pace    string `json:"pace"`
	Limiter string `json:"limiter"`
	Threads int    `json:"threads"`
	Crowd   crowd  `json:"crowd"`
}

type crowd struct {
	Producers int `json:"producers"`
	Consumers int `json:"consumers"`
}

type scale struct {
	Recurring      int     `json:"recurring"`
	Cycles         int     `json:"cycles"`
	Duplicates     int     `json:"duplicates"`
	Returning      int     `json:"returning"`
	Returns        int     `json:"returns"`
	Keys           int     `json:"keys"`
	HotKeys        int     `json:"hot_keys"`
	HotAdds        int     `json:"hot_adds"`
	BacklogWorkers int     `json:"backlog_workers"`
	BacklogAdds    int     `json:"backlog_adds"`
	Paced          int     `json:"paced"`
	CommonInterval float64 `json:"common_interval"`
	Starts         int     `json:"starts"`
	Wakes          int     `json:"wakes"`
	Fired          int     `json:"fired"`
	WorkNs         float64 `json:"work_ns"`
}

// Figures are nil when the workload does not apply, and one of them is when the queue cannot do it.
type response struct {
	Figures   []*float64 `json:"figures"`
	Delivered tally      `json:"delivered"`
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
		response := run(asked)
		// A collection that starts late would run during the next round.
		runtime.GC()
		must(responses.Encode(response))
	}
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

func run(asked request) response {
	scale, workload, queue := asked.Scale, asked.Workload, asked.Queue
	switch workload.Kind {
	case "cycle":
		if workload.By == "str" {
			return cycle(queue, scale, nthString, tallyString)
		}
		return cycle(queue, scale, nthNumber, tallyNumber)
	case "duplicate":
		return duplicate(queue, scale, workload.Threads)
	case "flow":
		switch workload.Keys {
		case "strings":
			return flow(queue, scale.Keys, workload.Crowd, nthString, tallyString)
		case "worked":
			return flowWorked(queue, scale, workload.Crowd)
		}
		return flow(queue, scale.Keys, workload.Crowd, nthNumber, tallyNumber)
	case "hot":
		return hot(queue, scale, workload.Crowd)
	case "recur":
		return recur(queue, scale)
	case "replay":
		return replay(queue, asked.Events, asked.Passes)
	case "backlog":
		return backlog(queue, scale)
	case "latency":
		return latency(queue, scale, workload.Pace)
	case "wake":
		return wake(queue, scale)
	case "delay":
		return delay(queue, scale, workload.Of)
	case "limiter":
		return limiters(queue, scale, workload.Limiter, workload.Threads)
	case "memory":
		return memory(queue, scale)
	case "start":
		return start(queue, scale)
	}
	return response{}
}

func figures(values ...float64) []*float64 {
	figures := make([]*float64, len(values))
	for at := range values {
		figures[at] = &values[at]
	}
	return figures
}
