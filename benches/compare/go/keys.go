package main

import (
	"encoding/binary"
	"fmt"
	"math/bits"
)

// A kind of key, and how deliveries of it are counted; as in keys.rs.
type keys[K comparable] struct {
	// The nth key of an endless sequence of distinct ones.
	nth         func(n int) K
	fingerprint func(key K) uint64
}

var numbers = keys[uint64]{
	nth:         func(n int) uint64 { return uint64(n) * 0x9E3779B97F4A7C15 },
	fingerprint: func(key uint64) uint64 { return key },
}

var texts = keys[string]{
	nth: func(n int) string { return fmt.Sprintf("namespace-%d/object-%03d", n%10, n) },
	fingerprint: func(key string) uint64 {
		if len(key) < 8 {
			return 0
		}
		return binary.LittleEndian.Uint64([]byte(key[len(key)-8:]))
	},
}

// number undoes the nth of numbers.
func number(key uint64) int {
	return int(key * 0xF1DE83E19937733D)
}

func (k keys[K]) first(count int) []K {
	keys := make([]K, count)
	for n := range keys {
		keys[n] = k.nth(n)
	}
	return keys
}

// tally is that of the first keys, each so many times.
func (k keys[K]) tally(count, times int) tally {
	var all tally
	for n := range count {
		all.count(k.fingerprint(k.nth(n)))
	}
	return tally{all.number * uint64(times), all.sum * uint64(times)}
}

// How often keys were delivered, and which.
type tally struct {
	number, sum uint64
}

func (t *tally) count(fingerprint uint64) {
	t.number++
	high, low := bits.Mul64(fingerprint, fingerprint|1)
	t.sum += high ^ low
}
