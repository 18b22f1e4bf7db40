package main

import (
	"encoding/binary"
	"fmt"
	"math/bits"
)

// The keys of the workloads and how deliveries are counted, as in keys.rs.

// nthNumber is the nth key of an endless sequence of distinct ones.
func nthNumber(n int) uint64 {
	return uint64(n) * 0x9E3779B97F4A7C15
}

// number undoes nthNumber.
func number(key uint64) int {
	return int(key * 0xF1DE83E19937733D)
}

func nthString(n int) string {
	return fmt.Sprintf("namespace-%d/object-%03d", n%10, n)
}

func first[K comparable](count int, nth func(int) K) []K {
	keys := make([]K, count)
	for n := range keys {
		keys[n] = nth(n)
	}
	return keys
}

// How often keys were delivered, and which.
type tally struct {
	Count uint64 `json:"count"`
	Sum   uint64 `json:"sum"`
}

func (t *tally) count(fingerprint uint64) {
	t.Count++
	high, low := bits.Mul64(fingerprint, fingerprint|1)
	t.Sum += high ^ low
}

func (t *tally) merge(other tally) {
	t.Count += other.Count
	t.Sum += other.Sum
}

func tallyNumber(t *tally, key uint64) {
	t.count(key)
}

func tallyString(t *tally, key string) {
	t.count(binary.LittleEndian.Uint64([]byte(key[len(key)-8:])))
}
